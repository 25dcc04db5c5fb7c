#include "data/chat/jinja/builtins.h"

#include <algorithm>
#include <array>

namespace titan::data::jinja {
namespace {

const FilterRow* find_row(std::string_view name) {
  for (const FilterRows rows : {text_filters(), sequence_filters(), selecting_filters()})
    for (const FilterRow& row : rows)
      if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

Filter find_filter(std::string_view name) {
  const FilterRow* row = find_row(name);
  return row == nullptr ? nullptr : row->filter;
}

std::string filter_names() {
  std::vector<std::string_view> names;
  for (const FilterRows rows : {text_filters(), sequence_filters(), selecting_filters()})
    for (const FilterRow& row : rows) names.push_back(row.name);
  std::ranges::sort(names);
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments) {
  const FilterRow* row = find_row(name);
  if (row == nullptr) throw Fault("the filter `" + name + "` is not supported; expected one of " + filter_names());
  if (input.is_safe_text() && !row->takes_safe)
    throw Fault("the filter `" + name + "` after `safe` is not supported; apply `safe` last");
  return row->filter("the filter `" + name + "`", input, arguments);
}

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments) {
  const Test test = find_test(name);
  if (test == nullptr) throw Fault("the test `" + name + "` is not supported; expected one of " + test_names());
  return test("the test `" + name + "`", input, arguments);
}

}  // namespace titan::data::jinja
