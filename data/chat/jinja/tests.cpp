#include <algorithm>
#include <array>

#include "data/chat/jinja/builtins.h"
#include "data/chat/jinja/values/callable.h"
#include "data/chat/jinja/values/value_operators.h"

namespace titan::data::jinja {
namespace {

// Checks that there are no arguments, and calls `holds`.
template <bool (*holds)(const Value&)>
bool plain(const std::string& what, const Value& input, const Arguments& arguments) {
  arguments.bind(what, {});
  return holds(input);
}

template <bool (*holds)(const Value&, const Value&)>
bool binary(const std::string& what, const Value& input, const Arguments& arguments) {
  return holds(input, *arguments.bind(what, {"other"}, 1)[0]);
}

bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_text(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return is_boolean(value) && value.as_bool(); }
bool is_false(const Value& value) { return is_boolean(value) && !value.as_bool(); }
bool is_callable(const Value& value) {
  return value.is(Kind::kCallable) || value.is_undefined() || value.is(Kind::kLoop);
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_list() || value.is_dict() || value.is(Kind::kIterator) ||
         value.is(Kind::kLoop);
}

bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_dict() ||
         (value.is_list() && value.as_list().kind <= ListKind::kRange);
}

bool has_remainder(const Value& value, std::int64_t divisor, std::int64_t remainder) {
  return equal(calculate(Arithmetic::kModulo, value, Value::integer(divisor)), Value::integer(remainder));
}
bool is_odd(const Value& value) { return has_remainder(value, 2, 1); }
bool is_even(const Value& value) { return has_remainder(value, 2, 0); }
bool is_divisible(const Value& value, const Value& divisor) {
  return equal(calculate(Arithmetic::kModulo, value, divisor), Value::integer(0));
}

bool is_in(const Value& value, const Value& container) { return contains_item(container, value); }
bool is_not_equal(const Value& value, const Value& other) { return !equal(value, other); }
bool is_less(const Value& value, const Value& other) { return compare(value, other) < 0; }
bool is_less_equal(const Value& value, const Value& other) { return compare(value, other) <= 0; }
bool is_greater(const Value& value, const Value& other) { return compare(value, other) > 0; }
bool is_greater_equal(const Value& value, const Value& other) { return compare(value, other) >= 0; }

bool is_same(const Value& value, const Value& other) {
  const auto is_single = [](const Value& v) { return v.is_none() || v.is(Kind::kBool); };
  if (!is_single(value) && !is_single(other))
    throw Fault("the test `sameas` is supported with none, true and false only; use `equalto`");
  return value.kind() == other.kind() && equal(value, other);
}

struct TestRow {
  std::string_view name;
  Test test;
};

constexpr std::array<TestRow, 34> kTests = {{{"defined", plain<is_defined>},
                                             {"undefined", plain<is_undefined>},
                                             {"none", plain<is_none>},
                                             {"string", plain<is_text>},
                                             {"mapping", plain<is_mapping>},
                                             {"iterable", plain<is_iterable>},
                                             {"sequence", plain<is_sequence>},
                                             {"number", plain<is_number>},
                                             {"integer", plain<is_integer>},
                                             {"float", plain<is_float>},
                                             {"boolean", plain<is_boolean>},
                                             {"true", plain<is_true>},
                                             {"false", plain<is_false>},
                                             {"callable", plain<is_callable>},
                                             {"odd", plain<is_odd>},
                                             {"even", plain<is_even>},
                                             {"divisibleby", binary<is_divisible>},
                                             {"in", binary<is_in>},
                                             {"sameas", binary<is_same>},
                                             {"equalto", binary<equal>},
                                             {"eq", binary<equal>},
                                             {"==", binary<equal>},
                                             {"ne", binary<is_not_equal>},
                                             {"!=", binary<is_not_equal>},
                                             {"lt", binary<is_less>},
                                             {"lessthan", binary<is_less>},
                                             {"<", binary<is_less>},
                                             {"le", binary<is_less_equal>},
                                             {"<=", binary<is_less_equal>},
                                             {"gt", binary<is_greater>},
                                             {"greaterthan", binary<is_greater>},
                                             {">", binary<is_greater>},
                                             {"ge", binary<is_greater_equal>},
                                             {">=", binary<is_greater_equal>}}};

}  // namespace

Test find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &TestRow::name);
  return found == kTests.end() ? nullptr : found->test;
}

std::string test_names() {
  std::string text;
  for (const TestRow& row : kTests)
    if (row.name[0] >= 'a') text.append(text.empty() ? "" : ", ").append(row.name);
  return text;
}

}  // namespace titan::data::jinja
