#include "data/chat/jinja/values/value_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "data/chat/jinja/values/callable.h"
#include "data/text/code_points.h"
#include "data/text/unicode_category.h"

namespace titan::data::jinja {
namespace {

// Characters that repr() escapes: separators except the space, controls, and what is not assigned.
bool is_printable(char32_t point) {
  static const std::array<CodeRanges, 2> ranges = {*category_ranges("C"), *category_ranges("Z")};
  return point == ' ' || !(contains(ranges[0], point) || contains(ranges[1], point));
}

void append_hex(std::string& out, std::string_view prefix, char32_t value, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[value >> shift & 15];
}

void append_quoted(std::string& out, const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const char32_t point = next_code_point(text, at);
    if (point == static_cast<unsigned char>(quote) || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == '\r') {
      out += "\\r";
    } else if (point == '\t') {
      out += "\\t";
    } else if (point >= 0x20 && point < 0x7F) {
      out += static_cast<char>(point);
    } else if (is_printable(point)) {
      out.append(text, from, at - from);
    } else if (point < 0x100) {
      append_hex(out, "\\x", point, 2);
    } else if (point < 0x10000) {
      append_hex(out, "\\u", point, 4);
    } else {
      append_hex(out, "\\U", point, 8);
    }
  }
  out += quote;
}

void append_repr(std::string& out, const Value& value, std::size_t depth);

void append_entries(std::string& out, const Entries& entries, std::size_t depth) {
  out += '{';
  for (const auto& [key, item] : entries) {
    if (&key != &entries.front().first) out += ", ";
    append_repr(out, key, depth);
    out += ": ";
    append_repr(out, item, depth);
  }
  out += '}';
}

void append_list(std::string& out, const List& list, std::size_t depth) {
  constexpr std::string_view kOpen[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
  constexpr std::string_view kClose[] = {"]", ")", "", "])", "])", "])"};
  if (list.kind == ListKind::kRange) throw Fault("printing a range is not supported; add the filter `list`");
  out += kOpen[static_cast<std::size_t>(list.kind)];
  for (const Value& item : list.items) {
    if (&item != &list.items.front()) out += ", ";
    append_repr(out, item, depth);
  }
  if (list.kind == ListKind::kTuple && list.items.size() == 1) out += ',';
  out += kClose[static_cast<std::size_t>(list.kind)];
}

void append_repr(std::string& out, const Value& value, std::size_t depth) {
  if (depth > kMaxDepth) throw Fault("a namespace that contains itself cannot be printed");
  check_weight(out.size());
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kText:
      if (value.is_safe_text()) throw Fault("text marked by the filter `safe` cannot be printed inside a list or dict");
      append_quoted(out, value.as_text());
      return;
    case Kind::kList:
      append_list(out, value.as_list(), depth + 1);
      return;
    case Kind::kDict:
      append_entries(out, value.as_dict().entries, depth + 1);
      return;
    case Kind::kNamespace: {
      Entries entries;
      for (const auto& [name, item] : value.as_namespace().attributes) entries.emplace_back(Value::text(name), item);
      out += "<Namespace ";
      append_entries(out, entries, depth + 1);
      out += '>';
      return;
    }
    default:
      append_text(out, value);
  }
}

}  // namespace

std::string real_to_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t mark = shortest.find('e');
  const int exponent = std::atoi(shortest.data() + mark + 1);
  std::string digits;
  for (const char c : shortest.substr(0, mark))
    if (c != '-' && c != '.') digits += c;
  const std::string sign = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {  // the bounds of CPython's repr
    const std::string number = std::to_string(std::abs(exponent));
    return sign + digits[0] + (digits.size() > 1 ? "." + digits.substr(1) : "") + (exponent < 0 ? "e-" : "e+") +
           (number.size() < 2 ? "0" : "") + number;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_text(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return;
    case Kind::kInt:
      out += std::to_string(value.as_integer());
      return;
    case Kind::kFloat:
      out += real_to_text(value.as_real());
      return;
    case Kind::kText:
      out += value.as_text();
      check_weight(out.size());
      return;
    case Kind::kList:
    case Kind::kDict:
    case Kind::kNamespace:
      append_repr(out, value, 0);
      return;
    case Kind::kIterator:
      throw Fault("a filter that makes a sequence was printed; add the filter `list` or `join`");
    case Kind::kLoop:
      throw Fault("`loop` itself cannot be printed; use one of its attributes, such as `loop.index`");
    case Kind::kCallable:
      throw Fault("`" + value.as_callable().name + "` is a function and cannot be printed; call it with `()`");
  }
}

std::string to_text(const Value& value) {
  std::string out;
  append_text(out, value);
  return out;
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(out, value, 0);
  return out;
}

}  // namespace titan::data::jinja
