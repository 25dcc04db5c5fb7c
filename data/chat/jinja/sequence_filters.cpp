#include <algorithm>
#include <iterator>

#include "data/chat/jinja/attributes.h"
#include "data/chat/jinja/builtins.h"
#include "data/chat/jinja/values/loop.h"
#include "data/chat/jinja/values/python_text.h"
#include "data/chat/jinja/values/value_operators.h"
#include "data/chat/jinja/values/value_text.h"

namespace titan::data::jinja {
namespace {

Value length(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  return Value::integer(length_of(input));
}

Value default_value(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"default_value", "boolean"});
  if (!input.is_undefined() && !(flag_argument(bound[1]) && !input.truthy())) return input;
  return bound[0] != nullptr ? *bound[0] : Value::text("");
}

// Returns the items in reverse order. Throws Fault for what Python's reversed() refuses.
Values reversed_items(const std::string& what, const Value& input) {
  if (input.is(Kind::kIterator)) throw Fault(what + " of a generator is not possible; add the filter `list` before it");
  Values items = iterate(input);
  std::ranges::reverse(items);
  return items;
}

Value first(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  if (input.is(Kind::kIterator)) {
    Iterator& iterator = input.as_iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
  } else if (input.is_text() && !input.as_text().empty()) {
    return Value::text(std::string(characters(input.as_text(), 0, 1)));
  } else {
    const Values items = iterate(input);
    if (!items.empty()) return items.front();
  }
  return Value::undefined("No first item, sequence was empty.");
}

Value last(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  const Values items = reversed_items(what, input);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.front();
}

Value list(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  return Value::list(iterate(input));
}

Value reverse(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  if (input.is_text()) return Value::text(reversed(input.as_text()));
  if (!input.is(Kind::kIterator)) return Value::iterator(reversed_items(what, input));
  Values items = iterate(input);
  std::ranges::reverse(items);
  return Value::list(std::move(items));
}

Value join(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"d", "attribute"});
  const std::string separator = bound[0] != nullptr ? to_text(*bound[0]) : "";
  std::string out;
  bool is_first = true;
  for (const Value& item : iterate(input)) {
    if (!is_first) out += separator;
    is_first = false;
    append_text(out, bound[1] != nullptr && !bound[1]->is_none() ? get_path(item, *bound[1]) : item);
    check_weight(out.size());
  }
  return Value::text(std::move(out));
}

Value items(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  if (input.is_undefined()) return Value::iterator({});
  if (!input.is_dict()) throw Fault(what + " needs a dict; found " + std::string(input.type_name()));
  Values pairs;
  for (const auto& [key, value] : input.as_dict().entries) pairs.push_back(Value::tuple({key, value}));
  return Value::iterator(std::move(pairs));
}

Value ignore_case(const Value& value) { return value.is_text() ? Value::text(to_lower(value.as_text())) : value; }

// Sorts as Python's sorted(): stable, in reverse too.
Values sorted(Values values, const std::vector<Values>& keys, bool reverse) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto less = [&](std::size_t a, std::size_t b) {
    for (std::size_t i = 0; i < keys[a].size(); ++i)
      if (!equal(keys[a][i], keys[b][i])) return compare(keys[a][i], keys[b][i]) < 0;
    return false;
  };
  // Checks that all keys have an order: a sort must not meet an error half-way through its comparisons only.
  for (std::size_t i = 1; i < order.size(); ++i) less(0, i);
  if (reverse) {
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return less(b, a); });
  } else {
    std::ranges::stable_sort(order, less);
  }
  Values out;
  for (const std::size_t i : order) out.push_back(values[i]);
  return out;
}

Value sort(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"reverse", "case_sensitive", "attribute"});
  Values paths = {Value()};
  if (bound[2] != nullptr && bound[2]->is_text()) {
    paths.clear();
    for (const std::string_view path : split(bound[2]->as_text(), ",", -1, false))
      paths.push_back(Value::text(std::string(path)));
  } else if (bound[2] != nullptr) {
    paths = {*bound[2]};
  }
  Values values = iterate(input);
  std::vector<Values> keys;
  for (const Value& value : values) {
    Values key;
    for (const Value& path : paths) {
      const Value part = path.is_none() ? value : get_path(value, path);
      key.push_back(flag_argument(bound[1]) ? part : ignore_case(part));
    }
    keys.push_back(std::move(key));
  }
  return Value::list(sorted(std::move(values), keys, flag_argument(bound[0])));
}

Value dictsort(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"case_sensitive", "by", "reverse"});
  require_defined(input);
  if (!input.is_dict()) throw Fault(what + " needs a dict; found " + std::string(input.type_name()));
  const std::string by = bound[1] != nullptr ? text_argument(what, *bound[1]) : "key";
  if (by != "key" && by != "value") throw Fault(what + " sorts by 'key' or 'value'; found '" + by + "'");
  Values pairs;
  std::vector<Values> keys;
  for (const auto& [key, value] : input.as_dict().entries) {
    const Value& part = by == "key" ? key : value;
    keys.push_back({flag_argument(bound[0]) ? part : ignore_case(part)});
    pairs.push_back(Value::tuple({key, value}));
  }
  return Value::list(sorted(std::move(pairs), keys, flag_argument(bound[2])));
}

template <bool largest>
Value extreme(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"case_sensitive", "attribute"});
  const Values values = iterate(input);
  if (values.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& value) {
    const Value part = bound[1] != nullptr && !bound[1]->is_none() ? get_path(value, *bound[1]) : value;
    return flag_argument(bound[0]) ? part : ignore_case(part);
  };
  std::size_t best = 0;
  Value best_key = key_of(values[0]);
  for (std::size_t i = 1; i < values.size(); ++i) {
    Value key = key_of(values[i]);
    if (!(largest ? compare(key, best_key) > 0 : compare(key, best_key) < 0)) continue;
    best = i;
    best_key = std::move(key);
  }
  return values[best];
}

Value sum(const std::string& what, const Value& input, const Arguments& arguments) {
  const auto bound = arguments.bind(what, {"attribute", "start"});
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_text()) throw Fault(what + " does not join text; use the filter `join`");
  for (const Value& item : iterate(input))
    total = calculate(Arithmetic::kAdd, total,
                      bound[0] != nullptr && !bound[0]->is_none() ? get_path(item, *bound[0]) : item);
  return total;
}

constexpr FilterRow kSequenceFilters[] = {
    {"length", length, true},   {"count", length, true}, {"default", default_value, true},
    {"d", default_value, true}, {"first", first},        {"last", last},
    {"list", list, true},       {"reverse", reverse},    {"join", join, true},
    {"items", items},           {"sort", sort},          {"dictsort", dictsort},
    {"min", extreme<false>},    {"max", extreme<true>},  {"sum", sum}};

}  // namespace

FilterRows sequence_filters() { return {std::begin(kSequenceFilters), std::end(kSequenceFilters)}; }

}  // namespace titan::data::jinja
