#include "data/chat/jinja/values/value_operators.h"

#include <algorithm>
#include <cmath>

#include "data/chat/jinja/values/callable.h"
#include "data/chat/jinja/values/python_text.h"

namespace titan::data::jinja {
namespace {

std::partial_ordering compare_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return left.as_integer() <=> right.as_integer();
  if (!left.is_integral() && !right.is_integral()) return left.as_real() <=> right.as_real();
  if (left.is_integral()) {
    const std::partial_ordering turned = compare_numbers(right, left);
    return turned == std::partial_ordering::unordered ? turned : 0 <=> turned;
  }
  const double real = left.as_real();
  if (std::isnan(real)) return std::partial_ordering::unordered;
  constexpr double kBeyond = 9223372036854775808.0;  // 2^63
  if (real >= kBeyond) return std::partial_ordering::greater;
  if (real < -kBeyond) return std::partial_ordering::less;
  const auto whole = static_cast<std::int64_t>(real);  // rounds toward zero
  if (whole != right.as_integer()) return whole <=> right.as_integer();
  return real <=> std::trunc(real);
}

bool is_sequence(const Value& value, ListKind kind) { return value.is_list() && value.as_list().kind == kind; }

// True if two lists are of types that Python compares by their items.
bool are_comparable(const Value& left, const Value& right) {
  return (is_sequence(left, ListKind::kList) && is_sequence(right, ListKind::kList)) ||
         (is_sequence(left, ListKind::kTuple) && is_sequence(right, ListKind::kTuple)) ||
         (is_sequence(left, ListKind::kRange) && is_sequence(right, ListKind::kRange));
}

bool equal_lists(const Values& left, const Values& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!equal(left[i], right[i])) return false;
  return true;
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

[[noreturn]] void throw_types(const std::string& operation, const Value& left, const Value& right) {
  throw Fault(operation + " is not defined for " + std::string(left.type_name()) + " and " +
              std::string(right.type_name()));
}

std::partial_ordering compare_lists(const Values& left, const Values& right) {
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i)
    if (!equal(left[i], right[i])) return compare(left[i], right[i]);
  return left.size() <=> right.size();
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is_undefined()) throw Fault(value.missing());
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      return left.as_text() == right.as_text();
    case Kind::kList:
      if (&left.as_list() == &right.as_list()) return true;
      return are_comparable(left, right) && equal_lists(left.as_list().items, right.as_list().items);
    case Kind::kDict:
      return &left.as_dict() == &right.as_dict() || equal_dicts(left.as_dict(), right.as_dict());
    case Kind::kIterator:
      return &left.as_iterator() == &right.as_iterator();
    case Kind::kNamespace:
      return &left.as_namespace() == &right.as_namespace();
    case Kind::kLoop:
      return &left.as_loop() == &right.as_loop();
    case Kind::kCallable:
      return &left.as_callable() == &right.as_callable();
    default:
      return false;  // numbers, above
  }
}

std::partial_ordering compare(const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  if (left.is_number() && right.is_number()) return compare_numbers(left, right);
  if (left.is_text() && right.is_text()) return left.as_text().compare(right.as_text()) <=> 0;
  if (are_comparable(left, right) && !is_sequence(left, ListKind::kRange))
    return compare_lists(left.as_list().items, right.as_list().items);
  throw_types("an order", left, right);
}

bool contains_item(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      require_defined(item);
      if (!item.is_text()) throw_types("`in`", item, container);
      return container.as_text().find(item.as_text()) != std::string::npos;
    case Kind::kList:
      for (const Value& member : container.as_list().items)
        if (equal(member, item)) return true;
      return false;
    case Kind::kDict:
      return container.as_dict().find(item) != nullptr;
    case Kind::kIterator: {
      Iterator& iterator = container.as_iterator();
      while (iterator.next < iterator.items.size())
        if (equal(iterator.items[iterator.next++], item)) return true;
      return false;
    }
    default:
      throw_types("`in`", item, container);
  }
}

std::int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return static_cast<std::int64_t>(count_characters(value.as_text()));
    case Kind::kList:
      return static_cast<std::int64_t>(value.as_list().items.size());
    case Kind::kDict:
      return static_cast<std::int64_t>(value.as_dict().entries.size());
    default:
      throw Fault("a value of type " + std::string(value.type_name()) + " does not have a length" +
                  (value.is(Kind::kIterator) ? "; add the filter `list` before `length`" : ""));
  }
}

std::optional<Value> subscript(const Value& value, const Value& index) {
  require_defined(value);
  if (value.is_dict()) {
    if (const Value* found = value.as_dict().find(index)) return *found;
    return std::nullopt;
  }
  if (!index.is_integral() || !(value.is_text() || value.is_list())) return std::nullopt;
  if (value.is_list() && value.as_list().kind > ListKind::kRange) return std::nullopt;
  std::int64_t at = index.as_integer();
  const std::int64_t length = length_of(value);
  if (at < 0) at += length;
  if (at < 0 || at >= length) return std::nullopt;
  if (value.is_list()) return value.as_list().items[static_cast<std::size_t>(at)];
  return Value::text(std::string(characters(value.as_text(), static_cast<std::size_t>(at), 1)), value.is_safe_text());
}

Value slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  const bool sliceable = value.is_text() || (value.is_list() && value.as_list().kind <= ListKind::kRange);
  if (!sliceable) throw Fault("a value of type " + std::string(value.type_name()) + " cannot be sliced");
  const auto bound = [](const Value& part, std::int64_t otherwise) {
    if (part.is_none()) return otherwise;
    require_defined(part);
    if (!part.is_integral()) throw Fault("a slice needs integers; found " + std::string(part.type_name()));
    return part.as_integer();
  };
  const std::int64_t length = length_of(value);
  const std::int64_t stride = bound(step, 1);
  if (stride == 0) throw Fault("the step of a slice must not be 0");
  const std::int64_t lowest = stride > 0 ? 0 : -1;
  const std::int64_t highest = stride > 0 ? length : length - 1;
  const auto clamp = [&](std::int64_t at) {
    if (at < 0) at = at < -length ? lowest : at + length;
    return std::max(lowest, std::min(at, highest));
  };
  const std::int64_t from = start.is_none() ? (stride > 0 ? lowest : highest) : clamp(bound(start, 0));
  const std::int64_t to = stop.is_none() ? (stride > 0 ? highest : lowest) : clamp(bound(stop, 0));
  if (value.is_text() && stride == 1) {
    if (from >= to) return Value::text("", value.is_safe_text());
    const auto count = static_cast<std::size_t>(to - from);
    return Value::text(std::string(characters(value.as_text(), static_cast<std::size_t>(from), count)),
                       value.is_safe_text());
  }
  std::vector<std::string_view> letters;
  if (value.is_text()) letters = all_characters(value.as_text());
  Values items;
  std::string text;
  const std::uint64_t distance = stride > 0 ? (to > from ? static_cast<std::uint64_t>(to - from) : 0)
                                            : (from > to ? static_cast<std::uint64_t>(from - to) : 0);
  const std::uint64_t width = stride > 0 ? static_cast<std::uint64_t>(stride) : 0 - static_cast<std::uint64_t>(stride);
  for (std::uint64_t passed = 0; passed < distance; passed += width) {
    const auto at = static_cast<std::size_t>(stride > 0 ? from + static_cast<std::int64_t>(passed)
                                                        : from - static_cast<std::int64_t>(passed));
    if (value.is_text()) {
      text += letters[at];
    } else {
      items.push_back(value.as_list().items[at]);
    }
    if (width > distance) break;
  }
  if (value.is_text()) return Value::text(std::move(text), value.is_safe_text());
  return Value::list(std::move(items), value.as_list().kind);
}

}  // namespace titan::data::jinja
