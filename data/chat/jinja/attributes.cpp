#include "data/chat/jinja/attributes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "data/chat/jinja/methods.h"
#include "data/chat/jinja/values/callable.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {
namespace {

// Python's attributes that this program does not have, by type.
constexpr std::array<std::string_view, 31> kOtherOfText = {
    "casefold",   "center",   "encode",    "expandtabs", "format",       "format_map",   "index",     "isalnum",
    "isalpha",    "isascii",  "isdecimal", "isdigit",    "isidentifier", "islower",      "isnumeric", "isprintable",
    "isspace",    "istitle",  "isupper",   "ljust",      "maketrans",    "partition",    "rindex",    "rjust",
    "rpartition", "swapcase", "translate", "zfill",      "removeprefix", "removesuffix", "rfind"};
constexpr std::array<std::string_view, 1> kOtherOfDict = {"fromkeys"};
constexpr std::array<std::string_view, 5> kMutatorsOfDict = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> kMutatorsOfList = {"append", "clear",  "extend",  "insert",
                                                             "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 15> kOfNumbers = {
    "real",       "imag",      "numerator", "denominator", "conjugate",
    "bit_length", "bit_count", "to_bytes",  "from_bytes",  "as_integer_ratio",
    "is_integer", "hex",       "fromhex",   "start",       "stop"};

template <std::size_t n>
bool has(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string object_name(const Value& object) {
  return object.is_none() ? "None" : std::string(object.type_name()) + " object";
}

Value missing_attribute(const Value& object, const std::string& name) {
  return Value::undefined("'" + object_name(object) + "' has no attribute '" + name + "'");
}

[[noreturn]] void throw_unsupported(const Value& object, const std::string& name) {
  throw Fault("`" + name + "` of a " + std::string(object.type_name()) + " is not supported");
}

// Returns Python's attribute without a look at the items; nullopt if there is none.
std::optional<Value> python_attribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* found = object.as_namespace().find(name);
      return found != nullptr ? std::optional(*found) : std::nullopt;
    }
    case Kind::kLoop:
      return object.as_loop().attribute(name);
    case Kind::kText:
    case Kind::kDict:
    case Kind::kList: {
      const bool is_list = object.is_list() && object.as_list().kind == ListKind::kList;
      if ((object.is_dict() && has(kMutatorsOfDict, name)) || (is_list && has(kMutatorsOfList, name)))
        return Value::undefined("`" + name + "` changes a " + std::string(object.type_name()) +
                                ", which templates must not do; make a new one, and keep it in a namespace");
      const bool is_other =
          (object.is_text() && has(kOtherOfText, name)) || (object.is_dict() && has(kOtherOfDict, name));
      if (!is_other && !has_method(object, name)) return std::nullopt;
      return Value::of(std::make_shared<const Callable>(Callable{Callable::Kind::kMethod, name, object}));
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (has(kOfNumbers, name)) throw_unsupported(object, name);
      return std::nullopt;
    case Kind::kCallable:
      throw_unsupported(object, name);
    default:
      return std::nullopt;
  }
}

// Returns the parts of "a.b.0": names, and numbers as integers.
Values path_parts(const Value& path) {
  if (!path.is_text()) return {path};
  Values parts;
  for (const std::string_view part : split(path.as_text(), ".", -1, false)) {
    const bool is_number = !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    const auto number = is_number ? parse_integer(part) : std::nullopt;
    parts.push_back(number ? Value::integer(*number) : Value::text(std::string(part)));
  }
  return parts;
}

}  // namespace

Value get_attribute(const Value& object, const std::string& name) {
  require_defined(object);
  if (std::optional<Value> attribute = python_attribute(object, name)) return *std::move(attribute);
  if (object.is_dict())
    if (const Value* item = object.as_dict().find(name)) return *item;
  return missing_attribute(object, name);
}

Value get_item(const Value& object, const Value& index) {
  require_defined(object);
  const bool hashable = !index.is_dict() && !(index.is_list() && index.as_list().kind != ListKind::kTuple);
  if (hashable)
    if (std::optional<Value> item = subscript(object, index)) return *std::move(item);
  if (!index.is_text()) return Value::undefined(object_name(object) + " has no element " + to_repr(index));
  if (index.as_text().starts_with("__"))
    throw Fault("`" + index.as_text() + "` is internal to Python; templates must not use it");
  if (std::optional<Value> attribute = python_attribute(object, index.as_text())) return *std::move(attribute);
  return missing_attribute(object, index.as_text());
}

Value get_path(Value object, const Value& path) {
  for (const Value& part : path_parts(path)) object = get_item(object, part);
  return object;
}

bool is_unsupported_method(std::string_view name) {
  return name != "index" && (has(kOtherOfText, name) || has(kOtherOfDict, name));  // lists have index()
}

}  // namespace titan::data::jinja
