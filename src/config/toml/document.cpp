#include "config/toml/document.h"

#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/fs.h"
#include "base/text.h"
#include "config/toml/toml_syntax.h"

namespace titan::config {
namespace {

Position position_of(const toml::source_position& at) { return {at.line, at.column}; }

constexpr int kDeepestKey = 100;

// Returns the place of the first dotted key of more than kDeepestKey parts, over which the parser would overflow the
// stack; it limits only brackets. Dots in values separate fewer parts.
std::optional<Position> find_too_deep_key(std::string_view text) {
  Position at{1, 1};
  int dots = 0;
  bool is_part = false;  // the character before is of a part of a key
  for (const char c : text) {
    const bool is_dot = c == '.';
    if (is_dot ? !is_part : std::string_view("=,[]{}#\n").find(c) != std::string_view::npos) dots = 0;
    if (is_dot && ++dots > kDeepestKey) return at;
    is_part = is_dot ? false : is_part || (c != ' ' && c != '\t');
    c == '\n' ? (++at.line, at.column = 1) : ++at.column;
  }
  return std::nullopt;
}

Node to_node(const toml::node& from);

void add_members(const toml::table& from, Node& out) {
  for (const auto& [key, value] : from)
    out.members.push_back({std::string(key.str()), position_of(key.source().begin), to_node(value)});
  // toml++ sorts keys by name; restore the order of the file.
  std::ranges::stable_sort(out.members, {}, &Member::at);
}

Node to_node(const toml::node& from) {
  Node out;
  out.at = position_of(from.source().begin);
  out.kind = Node::Kind::kScalar;
  if (const auto* table = from.as_table()) {
    out.kind = Node::Kind::kTable;
    add_members(*table, out);
  } else if (const auto* array = from.as_array()) {
    out.kind = Node::Kind::kArray;
    for (const toml::node& item : *array) out.items.push_back(to_node(item));
  } else if (from.is_boolean()) {
    out.scalar = from.ref<bool>();
  } else if (from.is_integer()) {
    out.scalar = from.ref<std::int64_t>();
  } else if (from.is_floating_point()) {
    out.scalar = from.ref<double>();
  } else if (from.is_string()) {
    out.scalar = from.ref<std::string>();
  } else {
    out.kind = Node::Kind::kOther;
  }
  return out;
}

std::optional<StringList> to_strings(const Node& node) {
  if (!node.is_array()) return std::nullopt;
  StringList out;
  for (const Node& item : node.items) {
    if (!item.string()) return std::nullopt;
    out.push_back(*item.string());
  }
  return out;
}

std::optional<FieldValue> to_string_lists(const Node& node) {
  if (!node.is_array()) return std::nullopt;
  StringLists out;
  for (const Node& item : node.items) {
    auto list = to_strings(item);
    if (!list) return std::nullopt;
    out.push_back(std::move(*list));
  }
  return out;
}

template <class T>
std::optional<FieldValue> scalar_as(const Node& node) {
  if (!std::holds_alternative<T>(node.scalar)) return std::nullopt;
  return node.scalar;
}

std::optional<FieldValue> to_number(const Node& node) {
  constexpr std::int64_t kLargestExact = std::int64_t{1} << std::numeric_limits<double>::digits;
  const auto* integer = std::get_if<std::int64_t>(&node.scalar);
  if (!integer) return scalar_as<double>(node);
  if (*integer < -kLargestExact || *integer > kLargestExact) return std::nullopt;
  return static_cast<double>(*integer);
}

// All list keys hold strings, so the first item of another type is the mistake.
std::string describe_list(const std::vector<Node>& items) {
  for (const Node& item : items) {
    if (item.string()) continue;
    return std::holds_alternative<std::int64_t>(item.scalar) ? "a list with an integer in it"
           : std::holds_alternative<double>(item.scalar)     ? "a list with a number in it"
                                                             : "a list with other things than strings in it";
  }
  return "a list";
}

// Returns "; write [\"a\", \"b\"]" if the mistake has one obvious fix.
std::string fix(const Field& field, const Node& node) {
  const std::string* text = node.string();
  if (field.kind == ValueKind::kStringList && text) return "; write " + to_toml_value(FieldValue(split(*text, ',')));
  if (const auto* integer = std::get_if<std::int64_t>(&node.scalar); integer && field.kind == ValueKind::kString)
    return "; write \"" + std::to_string(*integer) + "\"";
  const bool is_number = field.kind == ValueKind::kInt || field.kind == ValueKind::kFloat;
  if (!text || !(is_number || field.kind == ValueKind::kBool)) return {};
  std::string expected;
  const auto value = parse_text(field, *text, expected);
  return value && !std::holds_alternative<None>(*value) ? "; write " + to_toml_value(*value) : "";
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  const auto it = std::ranges::find(members, key, &Member::key);
  return it == members.end() ? nullptr : &it->value;
}

Node parse_toml(std::string_view text) {
  if (const auto deep = find_too_deep_key(text))
    throw TomlError("the key has more than " + std::to_string(kDeepestKey) + " parts between dots", *deep);
  try {
    return to_node(toml::parse(text));
  } catch (const toml::parse_error& fault) {
    const Position at = position_of(fault.source().begin);
    throw TomlError(syntax_message(fault.description(), text, at), at);
  }
}

Document::Document(std::string_view text, std::string name) : source_(std::move(name), text) {
  try {
    root_ = parse_toml(text);
  } catch (const TomlError& fault) {
    throw ConfigError(error(fault.at(), fault.what()));
  }
}

Document load_document(const std::filesystem::path& path) {
  try {
    return {read_file(path), path.string()};
  } catch (const DataError& error) {
    throw ConfigError("error: " + std::string(error.what()));
  }
}

std::string describe_found(const Node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return describe_list(node.items);
  if (node.kind == Node::Kind::kOther) return "a date or time";
  const std::string value = to_toml_value(node.scalar);
  if (node.string()) return "the string " + value;
  if (std::holds_alternative<std::int64_t>(node.scalar)) return "the integer " + value;
  return std::holds_alternative<double>(node.scalar) ? "the number " + value : value;
}

std::optional<FieldValue> to_field_value(const Field& field, const Node& node) {
  if (field.optional && node.string() && *node.string() == "None") return None{};
  switch (field.kind) {
    case ValueKind::kBool:
      return scalar_as<bool>(node);
    case ValueKind::kInt:
      return scalar_as<std::int64_t>(node);
    case ValueKind::kFloat:
      return to_number(node);
    case ValueKind::kString:
      return scalar_as<std::string>(node);
    case ValueKind::kStringList:
      if (field.rule.or_one_string && node.string()) return FieldValue(split(*node.string(), ','));
      if (auto list = to_strings(node)) return FieldValue(std::move(*list));
      return std::nullopt;
    case ValueKind::kStringLists:
      return to_string_lists(node);
  }
  return std::nullopt;
}

std::string wrong_type(const Field& field, const Node& node) {
  return expected_but_found(field, describe_found(node)) + fix(field, node);
}

}  // namespace titan::config
