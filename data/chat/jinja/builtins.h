// Filters, tests and functions, by name.
#pragma once

#include <ctime>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "data/chat/jinja/arguments.h"
#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// Holds what functions need from the rendering.
struct RenderState {
  std::function<std::time_t()> clock;
  std::deque<Namespace> spaces;  // all namespaces, until the end: they can refer to one another in circles
};

using Filter = Value (*)(const std::string& what, const Value& input, const Arguments& arguments);
using Test = bool (*)(const std::string& what, const Value& input, const Arguments& arguments);
using Function = Value (*)(const std::string& what, RenderState& state, const Arguments& arguments);

// Each returns null for an unknown name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Function find_function(std::string_view name);

// Names of all filters or tests, for messages.
std::string filter_names();
std::string test_names();

// Applies a filter or test. Throws Fault if there is none of this name.
Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& input, const Arguments& arguments);

// Rows of the tables of filters; each file of filters has one.
struct FilterRow {
  std::string_view name;
  Filter filter;
  bool takes_safe = false;  // gives the right result for text that is marked safe
};
struct FilterRows {
  const FilterRow* begin_;
  const FilterRow* end_;
  const FilterRow* begin() const { return begin_; }
  const FilterRow* end() const { return end_; }
};
FilterRows text_filters();
FilterRows sequence_filters();
FilterRows selecting_filters();

}  // namespace titan::data::jinja
