// Python's operators on values.
#pragma once

#include <compare>
#include <optional>

#include "data/chat/jinja/values/template_value.h"

namespace titan::data::jinja {

// True if Python's == is true. Never throws.
bool equal(const Value& left, const Value& right);

// Compares as Python's < does; unordered for NaN. Throws Fault for types without an order.
std::partial_ordering compare(const Value& left, const Value& right);

// True if `item in container`. Throws Fault if `container` is not a container.
bool contains_item(const Value& container, const Value& item);

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// Throws Fault for operands that Python refuses, for integers beyond 64 bits, and for formatting with "%".
Value calculate(Arithmetic operation, const Value& left, const Value& right);
Value negate(const Value& value);
Value positive(const Value& value);

// Returns value[index]; nullopt if there is no such item. Does not look for attributes.
std::optional<Value> subscript(const Value& value, const Value& index);

// Returns value[start:stop:step]; None stands for a bound that was left out.
Value slice(const Value& value, const Value& start, const Value& stop, const Value& step);

// Returns len(value). Throws Fault for a value without a length.
std::int64_t length_of(const Value& value);

// Throws Fault with the message of an undefined value.
void require_defined(const Value& value);

// Returns `text` with &, <, >, ' and " written as HTML entities: for "+" with a string that is marked safe.
std::string escape_html(std::string_view text);

}  // namespace titan::data::jinja
