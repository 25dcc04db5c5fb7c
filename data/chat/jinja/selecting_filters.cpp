#include <iterator>
#include <unordered_set>

#include "data/chat/jinja/attributes.h"
#include "data/chat/jinja/builtins.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {
namespace {

// Arguments without the first `count` positional ones.
Arguments rest_of(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

// map(attribute=PATH, default=...) or map(FILTER, arguments of the filter).
Value map(const std::string& what, const Value& input, const Arguments& arguments) {
  Values out;
  if (!input.truthy()) return Value::iterator({});
  if (arguments.positional.empty()) {
    const auto bound = arguments.bind(what, {"attribute", "default"}, 1);
    const bool has_default = bound[1] != nullptr && !bound[1]->is_none();
    for (const Value& item : iterate(input)) {
      if (!has_default) {
        out.push_back(get_path(item, *bound[0]));
        continue;
      }
      Value part = item;  // the default stands for a missing part of the path, too
      for (const std::string_view name : split(text_argument(what, *bound[0]), ".", -1, false)) {
        part = get_path(part, Value::text(std::string(name)));
        if (part.is_undefined()) part = *bound[1];
      }
      out.push_back(std::move(part));
    }
  } else {
    const std::string& name = text_argument(what, arguments.positional[0]);
    const Arguments rest = rest_of(arguments, 1);
    for (const Value& item : iterate(input)) out.push_back(apply_filter(name, item, rest));
  }
  return Value::iterator(std::move(out));
}

// Keeps the items for which a test is `wanted`. With `by_attribute`, the first argument names what is tested.
template <bool by_attribute, bool wanted>
Value select(const std::string& what, const Value& input, const Arguments& arguments) {
  constexpr std::size_t kTestAt = by_attribute ? 1 : 0;
  if (!input.truthy()) return Value::iterator({});
  if (by_attribute && arguments.positional.empty()) throw Fault(what + " needs the name of an attribute");
  const bool has_test = arguments.positional.size() > kTestAt;
  const std::string name = has_test ? text_argument(what, arguments.positional[kTestAt]) : "";
  const Arguments rest = has_test ? rest_of(arguments, kTestAt + 1) : Arguments();
  Values out;
  for (const Value& item : iterate(input)) {
    const Value tested = by_attribute ? get_path(item, arguments.positional[0]) : item;
    if ((has_test ? apply_test(name, tested, rest) : tested.truthy()) == wanted) out.push_back(item);
  }
  return Value::iterator(std::move(out));
}

// Returns the same text for keys that are equal; empty for a key that has to be compared.
std::string fingerprint(const Value& key) {
  if (key.is_text()) return "t" + key.as_text();
  if (key.is_integral()) return "n" + std::to_string(key.as_integer());
  if (key.is_none() || key.is_undefined()) return std::string(key.type_name());
  return "";
}

Value unique(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"case_sensitive", "attribute"});
  std::unordered_set<std::string> seen;
  Values seen_others;
  Values out;
  for (const Value& item : iterate(input)) {
    Value key = bound[1] != nullptr && !bound[1]->is_none() ? get_path(item, *bound[1]) : item;
    if (key.is_text() && !flag_argument(bound[0])) key = Value::text(to_lower(key.as_text()));
    const std::string text = fingerprint(key);
    if (!text.empty()) {
      if (seen.insert(text).second) out.push_back(item);
      continue;
    }
    if (key.is_dict() || key.is_list() || key.is(Kind::kFloat))
      throw Fault(what + " supports text, integers and none; found " + std::string(key.type_name()));
    bool is_new = true;
    for (const Value& other : seen_others) is_new = is_new && !equal(other, key);
    if (is_new) {
      out.push_back(item);
      seen_others.push_back(std::move(key));
    }
  }
  return Value::iterator(std::move(out));
}

constexpr FilterRow kSelectingFilters[] = {{"map", map},
                                           {"select", select<false, true>},
                                           {"reject", select<false, false>},
                                           {"selectattr", select<true, true>},
                                           {"rejectattr", select<true, false>},
                                           {"unique", unique}};

}  // namespace

FilterRows selecting_filters() { return {std::begin(kSelectingFilters), std::end(kSelectingFilters)}; }

}  // namespace titan::data::jinja
