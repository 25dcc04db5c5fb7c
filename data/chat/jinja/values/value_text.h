// Text of values: Python's str() and repr(), and json.dumps().
#pragma once

#include <string>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// Returns str(value), which is what `{{ value }}` prints. Throws Fault for values that Python prints with an address
// (a method, a generator): such output is a mistake of the template.
std::string to_text(const Value& value);

// Appends to_text(value), without a copy of what is text already.
void append_text(std::string& out, const Value& value);

// Returns repr(value).
std::string to_repr(const Value& value);

// Returns the shortest digits that give `value` again, in Python's notation: "1.0", "1e+16", "nan".
std::string real_to_text(double value);

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool lines = false;  // each item on a line of its own, indented by `indent` per level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Returns json.dumps(value). Throws Fault for values that json.dumps() refuses.
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace titan::data::jinja
