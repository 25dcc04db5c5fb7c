// Arguments of a call of a filter, test, function, method or macro.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns one pointer per parameter in `names`, null for one that was not given. Throws Fault for arguments beyond
  // them, and if one of the first `required` is missing. `what` is the callee in messages: "the filter `indent`".
  std::vector<const Value*> bind(const std::string& what, std::initializer_list<std::string_view> names,
                                 std::size_t required = 0) const;

  // As bind(), and refuses named arguments, as most methods of Python's str do.
  std::vector<const Value*> bind_positional(const std::string& what, std::initializer_list<std::string_view> names,
                                            std::size_t required = 0) const;
};

// Returns the text of an argument. Throws Fault if it is not text.
const std::string& text_argument(const std::string& what, const Value& value);
std::int64_t integer_argument(const std::string& what, const Value& value);

// Returns false for null.
bool flag_argument(const Value* value);

}  // namespace titan::data::jinja
