// Attributes and items of values, with the rules of Jinja's sandbox; methods of str, dict and list.
#pragma once

#include <string>
#include <string_view>

#include "data/chat/jinja/arguments.h"
#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// Returns `object.name`: the attribute, else the item. Undefined if there is neither. Throws Fault if `object` is
// undefined, and for attributes that Python has but this program does not.
Value get_attribute(const Value& object, const std::string& name);

// Returns `object[index]`: the item, else the attribute if `index` is text. As above.
Value get_item(const Value& object, const Value& index);

// Returns the item at a path such as "function.name" or "0.text", as the filters' `attribute` arguments name it.
Value get_path(Value object, const Value& path);

// True if `name` is a method of str, dict or list in Python that is not supported, so that a call can be refused early.
bool is_unsupported_method(std::string_view name);

// Calls a method that get_attribute() has returned.
Value call_method(const Value& receiver, const std::string& name, const Arguments& arguments);

}  // namespace titan::data::jinja
