#include <algorithm>
#include <cmath>

#include "data/chat/jinja/values/value_operators.h"

namespace titan::data::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void throw_overflow() { throw Fault("an integer has left the range of 64 bits, which is not supported"); }

std::int64_t floor_divide(std::int64_t left, std::int64_t right) {
  if (left == INT64_MIN && right == -1) throw_overflow();
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

std::int64_t modulo(std::int64_t left, std::int64_t right) {
  if (right == -1) return 0;
  const std::int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  std::int64_t result = 1;
  for (; exponent > 0; --exponent)  // ends after 63 rounds at most, by overflow
    if (__builtin_mul_overflow(result, base, &result)) throw_overflow();
  return result;
}

void check_divisor(bool is_zero) {
  if (is_zero) throw Fault("division by zero");
}

Value calculate_integers(Arithmetic operation, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  switch (operation) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(left, right, &result)) throw_overflow();
      return Value::integer(result);
    case Arithmetic::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) throw_overflow();
      return Value::integer(result);
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) throw_overflow();
      return Value::integer(result);
    case Arithmetic::kDivide: {
      check_divisor(right == 0);
      constexpr std::int64_t kExact = std::int64_t{1} << 53;
      if (left > kExact || left < -kExact || right > kExact || right < -kExact) throw_overflow();
      return Value::real(static_cast<double>(left) / static_cast<double>(right));
    }
    case Arithmetic::kFloorDivide:
      check_divisor(right == 0);
      return Value::integer(floor_divide(left, right));
    case Arithmetic::kModulo:
      check_divisor(right == 0);
      return Value::integer(modulo(left, right));
    case Arithmetic::kPower:
      if (right >= 0) return Value::integer(power(left, right));
      check_divisor(left == 0);
      return Value::real(std::pow(static_cast<double>(left), static_cast<double>(right)));
  }
  throw_overflow();
}

// Sign rules are those of CPython's float_divmod.
Value divide_reals(Arithmetic operation, double left, double right) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0) {
    if ((right < 0) != (rest < 0)) {
      rest += right;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, right);
  }
  if (operation == Arithmetic::kModulo) return Value::real(rest);
  if (quotient == 0) return Value::real(std::copysign(0.0, left / right));
  const double whole = std::floor(quotient);
  return Value::real(quotient - whole > 0.5 ? whole + 1 : whole);
}

Value calculate_reals(Arithmetic operation, double left, double right) {
  switch (operation) {
    case Arithmetic::kAdd:
      return Value::real(left + right);
    case Arithmetic::kSubtract:
      return Value::real(left - right);
    case Arithmetic::kMultiply:
      return Value::real(left * right);
    case Arithmetic::kDivide:
      check_divisor(right == 0);
      return Value::real(left / right);
    case Arithmetic::kPower: {
      check_divisor(left == 0 && right < 0);
      const double result = std::pow(left, right);
      if (std::isnan(result) && !std::isnan(left) && !std::isnan(right))
        throw Fault("the power of a negative number to a fraction is not supported");
      if (std::isinf(result) && std::isfinite(left) && std::isfinite(right)) throw Fault("the power is too large");
      return Value::real(result);
    }
    default:
      check_divisor(right == 0);
      return divide_reals(operation, left, right);
  }
}

Value add_texts(const Value& left, const Value& right) {
  if (!left.is_safe_text() && !right.is_safe_text()) {
    check_weight(left.as_text().size() + right.as_text().size());
    return Value::text(left.as_text() + right.as_text());
  }
  const auto part = [](const Value& value) {
    return value.is_safe_text() ? value.as_text() : escape_html(value.as_text());
  };
  return Value::text(part(left) + part(right), true);
}

Value repeat(const Value& value, std::int64_t count) {
  count = std::max<std::int64_t>(count, 0);
  if (static_cast<std::uint64_t>(count) > kMaxWeight) check_weight(kMaxWeight + 1);
  const auto times = static_cast<std::size_t>(count);
  check_weight((value.is_text() ? value.as_text().size() : value.weight()) * times);
  if (value.is_text()) {
    std::string text;
    text.reserve(value.as_text().size() * times);
    for (std::size_t i = 0; i < times; ++i) text += value.as_text();
    return Value::text(std::move(text), value.is_safe_text());
  }
  const Values& once = value.as_list().items;
  Values items;
  for (std::size_t i = 0; i < times; ++i) items.insert(items.end(), once.begin(), once.end());
  return Value::list(std::move(items), value.as_list().kind);
}

bool is_repeatable(const Value& value) {
  return value.is_text() || (value.is_list() && value.as_list().kind <= ListKind::kTuple);
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char byte : text) {
    switch (byte) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += byte;
    }
  }
  return out;
}

Value calculate(Arithmetic operation, const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral())
      return calculate_integers(operation, left.as_integer(), right.as_integer());
    return calculate_reals(operation, left.as_real(), right.as_real());
  }
  if (operation == Arithmetic::kAdd) {
    if (left.is_text() && right.is_text()) return add_texts(left, right);
    if (is_repeatable(left) && right.is_list() && left.is_list() && left.as_list().kind == right.as_list().kind) {
      Values items = left.as_list().items;
      const Values& more = right.as_list().items;
      items.insert(items.end(), more.begin(), more.end());
      return Value::list(std::move(items), left.as_list().kind);
    }
  }
  if (operation == Arithmetic::kMultiply) {
    if (is_repeatable(left) && right.is_integral()) return repeat(left, right.as_integer());
    if (is_repeatable(right) && left.is_integral()) return repeat(right, left.as_integer());
  }
  if (operation == Arithmetic::kModulo && left.is_text())
    throw Fault("formatting text with `%` is not supported; join the parts with `~`");
  throw Fault("`" + std::string(kSigns[static_cast<std::size_t>(operation)]) + "` is not defined for " +
              std::string(left.type_name()) + " and " + std::string(right.type_name()) +
              (left.is_text() || right.is_text() ? "; `~` joins values as text" : ""));
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_real());
  if (!value.is_integral()) throw Fault("`-` is not defined for " + std::string(value.type_name()));
  return calculate_integers(Arithmetic::kSubtract, 0, value.as_integer());
}

Value positive(const Value& value) {
  require_defined(value);
  if (!value.is_number()) throw Fault("`+` is not defined for " + std::string(value.type_name()));
  return value.is(Kind::kBool) ? Value::integer(value.as_integer()) : value;
}

}  // namespace titan::data::jinja
