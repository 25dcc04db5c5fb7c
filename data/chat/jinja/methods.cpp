#include "data/chat/jinja/methods.h"

#include <algorithm>
#include <iterator>

#include "data/chat/jinja/attributes.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {
namespace {

using Method = Value (*)(const std::string& what, const Value& self, const Arguments& arguments);

struct MethodRow {
  std::string_view name;
  Method method;
};

Value made(std::string_view text) { return Value::text(std::string(text)); }

Value list_of(const Pieces& pieces) {
  Values items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) items.push_back(made(piece));
  return Value::list(std::move(items));
}

template <Side side>
Value strip_method(const std::string& what, const Value& self, const Arguments& arguments) {
  const auto bound = arguments.bind_positional(what, {"chars"});
  if (bound[0] == nullptr || bound[0]->is_none()) return made(strip(self.as_text(), side));
  return made(strip(self.as_text(), side, text_argument(what, *bound[0])));
}

template <bool from_right>
Value split_method(const std::string& what, const Value& self, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"sep", "maxsplit"});
  const std::ptrdiff_t limit = bound[1] == nullptr ? -1 : integer_argument(what, *bound[1]);
  if (bound[0] == nullptr || bound[0]->is_none()) return list_of(split_words(self.as_text(), limit, from_right));
  const std::string& separator = text_argument(what, *bound[0]);
  if (separator.empty()) throw Fault(what + " needs a separator that is not empty");
  return list_of(split(self.as_text(), separator, limit, from_right));
}

Value split_lines_method(const std::string& what, const Value& self, const Arguments& arguments) {
  return list_of(split_lines(self.as_text(), flag_argument(arguments.bind(what, {"keepends"})[0])));
}

// Calls `matches` with the text, or with each of a tuple.
template <typename Matches>
Value any_affix(const std::string& what, const Arguments& arguments, Matches matches) {
  const Value& affix = *arguments.bind_positional(what, {"prefix"}, 1)[0];
  if (!affix.is_list() || affix.as_list().kind != ListKind::kTuple)
    return Value::boolean(matches(text_argument(what, affix)));
  return Value::boolean(
      std::ranges::any_of(affix.as_list().items, [&](const Value& one) { return matches(text_argument(what, one)); }));
}

Value starts_with(const std::string& what, const Value& self, const Arguments& arguments) {
  return any_affix(what, arguments, [&](const std::string& affix) { return self.as_text().starts_with(affix); });
}

Value ends_with(const std::string& what, const Value& self, const Arguments& arguments) {
  return any_affix(what, arguments, [&](const std::string& affix) { return self.as_text().ends_with(affix); });
}

template <std::string (*convert)(std::string_view)>
Value convert_method(const std::string& what, const Value& self, const Arguments& arguments) {
  arguments.bind_positional(what, {});
  return Value::text(convert(self.as_text()));
}

Value replace_method(const std::string& what, const Value& self, const Arguments& arguments) {
  const auto bound = arguments.bind_positional(what, {"old", "new", "count"}, 2);
  const std::ptrdiff_t limit = bound[2] == nullptr ? -1 : integer_argument(what, *bound[2]);
  return Value::text(replace(self.as_text(), text_argument(what, *bound[0]), text_argument(what, *bound[1]), limit));
}

Value find_method(const std::string& what, const Value& self, const Arguments& arguments) {
  const std::string& text = self.as_text();
  const std::size_t at = text.find(text_argument(what, *arguments.bind_positional(what, {"sub"}, 1)[0]));
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(static_cast<std::int64_t>(count_characters(std::string_view(text).substr(0, at))));
}

Value count_method(const std::string& what, const Value& self, const Arguments& arguments) {
  const std::string& part = text_argument(what, *arguments.bind_positional(what, {"sub"}, 1)[0]);
  return Value::integer(static_cast<std::int64_t>(count_occurrences(self.as_text(), part)));
}

Value join_method(const std::string& what, const Value& self, const Arguments& arguments) {
  std::string out;
  bool first = true;
  for (const Value& item : iterate(*arguments.bind_positional(what, {"iterable"}, 1)[0])) {
    if (!first) out += self.as_text();
    first = false;
    out += text_argument(what, item);
    check_weight(out.size());
  }
  return Value::text(std::move(out));
}

Value get_method(const std::string& what, const Value& self, const Arguments& arguments) {
  const auto bound = arguments.bind_positional(what, {"key", "default"}, 1);
  if (const Value* found = self.as_dict().find(*bound[0])) return *found;
  return bound[1] != nullptr ? *bound[1] : Value();
}

template <ListKind kind>
Value view_method(const std::string& what, const Value& self, const Arguments& arguments) {
  arguments.bind_positional(what, {});
  Values items;
  for (const auto& [key, value] : self.as_dict().entries)
    items.push_back(kind == ListKind::kKeys ? key : kind == ListKind::kValues ? value : Value::tuple({key, value}));
  return Value::list(std::move(items), kind);
}

Value copy_method(const std::string& what, const Value& self, const Arguments& arguments) {
  arguments.bind_positional(what, {});
  return self;  // values do not change
}

Value index_in_list(const std::string& what, const Value& self, const Arguments& arguments) {
  const Value& wanted = *arguments.bind_positional(what, {"value"}, 1)[0];
  const Values& items = self.as_list().items;
  const auto found = std::ranges::find_if(items, [&](const Value& item) { return equal(item, wanted); });
  if (found == items.end()) throw Fault(what + " did not find " + to_repr(wanted));
  return Value::integer(found - items.begin());
}

Value count_in_list(const std::string& what, const Value& self, const Arguments& arguments) {
  const Value& wanted = *arguments.bind_positional(what, {"value"}, 1)[0];
  return Value::integer(
      std::ranges::count_if(self.as_list().items, [&](const Value& item) { return equal(item, wanted); }));
}

constexpr MethodRow kTextMethods[] = {{"strip", strip_method<Side::kBoth>},
                                      {"lstrip", strip_method<Side::kLeft>},
                                      {"rstrip", strip_method<Side::kRight>},
                                      {"split", split_method<false>},
                                      {"rsplit", split_method<true>},
                                      {"splitlines", split_lines_method},
                                      {"startswith", starts_with},
                                      {"endswith", ends_with},
                                      {"upper", convert_method<to_upper>},
                                      {"lower", convert_method<to_lower>},
                                      {"title", convert_method<to_title>},
                                      {"capitalize", convert_method<capitalize>},
                                      {"replace", replace_method},
                                      {"find", find_method},
                                      {"count", count_method},
                                      {"join", join_method}};
constexpr MethodRow kDictMethods[] = {{"get", get_method},
                                      {"items", view_method<ListKind::kItems>},
                                      {"keys", view_method<ListKind::kKeys>},
                                      {"values", view_method<ListKind::kValues>},
                                      {"copy", copy_method}};
constexpr MethodRow kListMethods[] = {{"index", index_in_list}, {"count", count_in_list}, {"copy", copy_method}};

Method find_method_of(const Value& receiver, std::string_view name) {
  const auto search = [&](const auto& rows) -> Method {
    const auto* found = std::ranges::find(rows, name, &MethodRow::name);
    return found == std::end(rows) ? nullptr : found->method;
  };
  if (receiver.is_text()) return search(kTextMethods);
  if (receiver.is_dict()) return search(kDictMethods);
  if (!receiver.is_list() || receiver.as_list().kind > ListKind::kTuple) return nullptr;
  return name == "copy" && receiver.as_list().kind == ListKind::kTuple ? nullptr : search(kListMethods);
}

}  // namespace

bool has_method(const Value& receiver, std::string_view name) { return find_method_of(receiver, name) != nullptr; }

Value call_method(const Value& receiver, const std::string& name, const Arguments& arguments) {
  const Method method = find_method_of(receiver, name);
  if (method == nullptr)
    throw Fault("the method `" + name + "` of a " + std::string(receiver.type_name()) + " is not supported");
  if (receiver.is_safe_text())
    throw Fault("the method `" + name + "` of text marked by the filter `safe` is not supported; apply `safe` last");
  return method("the method `" + name + "`", receiver, arguments);
}

}  // namespace titan::data::jinja
