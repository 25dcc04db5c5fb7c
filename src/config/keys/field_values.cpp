#include "config/keys/field_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "base/utf8.h"
#include "config/keys/fields.h"

namespace titan::config {
namespace {

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char buffer[8];
      std::snprintf(buffer, sizeof(buffer), "\\u%04X", static_cast<unsigned>(c));
      out += buffer;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string shortest(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos)
    text += ".0";  // otherwise TOML reads an integer
  return text;
}

template <class T>
std::string bracketed(const std::vector<T>& items) {
  StringList parts;
  for (const auto& item : items) parts.push_back(to_toml_value(FieldValue(item)));
  return "[" + join(parts, ", ") + "]";
}

std::string number_text(double value) {
  std::string text = shortest(value);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

bool in_bounds(const Rule& rule, double value) {
  if (rule.or_minus_one && value == -1) return true;
  if (rule.min && (rule.min_excluded ? value <= *rule.min : value < *rule.min)) return false;
  return !(rule.max && (rule.max_excluded ? value >= *rule.max : value > *rule.max));
}

bool contains(const StringList& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// 1000, -1, 1_000: accepts what Python's int() does.
std::optional<std::int64_t> to_int(std::string_view text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || !std::isdigit(static_cast<unsigned char>(text[i - 1])) ||
               !std::isdigit(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  const std::size_t begin = digits.size() > 1 && digits[0] == '+' && digits[1] != '-' ? 1 : 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data() + begin, digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Accepts the spellings of TOML, Python and most launchers' variables.
std::optional<FieldValue> to_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  return std::nullopt;
}

std::optional<double> to_double(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string unusable(const Field& field, const FieldValue& value, const std::string& reason) {
  const FieldValue usual = default_value(field);
  std::string text = field.key + " = " + to_toml_value(value) + " is known but not built yet: " + reason;
  if (std::holds_alternative<None>(usual)) return text + "; leave the key out";
  return text + "; leave the key out, or set it to its default, " + to_toml_value(usual);
}

// Short names of dtypes are too far from the long ones for nearest_name().
std::optional<std::string> nearest_choice(const std::string& text, const StringList& choices) {
  static const std::map<std::string, std::string, std::less<>> kShortNames = {
      {"bf16", "bfloat16"}, {"fp32", "float32"}, {"f32", "float32"},
      {"fp16", "float16"},  {"f16", "float16"},  {"half", "float16"}};
  const auto it = kShortNames.find(text);
  if (it != kShortNames.end() && contains(choices, it->second)) return it->second;
  return nearest_name(text, choices);
}

// Only UTF-8 is allowed: the run writes the configuration as TOML, and its logs as JSON.
std::optional<std::string> bytes_fault(const Field& field, std::string_view text) {
  if (!find_invalid_utf8(text)) return std::nullopt;
  return field.key + ": expected text in UTF-8; found \"" + escape_invalid_utf8(text) +
         "\". A resume reads it from config.toml, which is UTF-8: rename the file or folder, or type the text in UTF-8";
}

std::optional<std::string> string_fault(const Field& field, const FieldValue& whole, const std::string& text) {
  if (auto fault = bytes_fault(field, text)) return fault;
  const Rule& rule = field.rule;
  if (contains(rule.choices_not_built, text)) {
    return unusable(field, whole,
                    rule.choices.empty() ? "it is not among the supported values"
                                         : "supported so far: " + join(rule.choices, ", "));
  }
  const auto number = rule.number_in_string ? to_int(text) : std::nullopt;
  const bool is_number = number && *number >= 1;
  if ((rule.number_in_string || !rule.choices.empty()) && !is_number && !contains(rule.choices, text)) {
    const auto near = nearest_choice(text, rule.choices);
    return expected_but_found(field, toml_string(text)) + (near ? "; did you mean " + toml_string(*near) + "?" : "");
  }
  if (rule.non_empty && text.empty()) return expected_but_found(field, "an empty one");
  return std::nullopt;
}

}  // namespace

std::string describe_kind(const Field& field) {
  switch (field.kind) {
    case ValueKind::kBool:
      return "true or false";
    case ValueKind::kInt:
      return "an integer";
    case ValueKind::kFloat:
      return "a number";
    case ValueKind::kString:
      return "a string";
    case ValueKind::kStringList:
      return "a list of strings";
    case ValueKind::kStringLists:
      return "a list of lists of strings";
  }
  return {};
}

std::string describe_rule(const Rule& rule) {
  const std::string number = rule.number_in_string ? "a positive integer in quotes" : "";
  if (!rule.choices.empty()) return "one of " + join(rule.choices, ", ") + (number.empty() ? "" : ", or " + number);
  if (rule.number_in_string) return number;
  if (rule.non_empty) return "not empty";
  StringList parts;
  if (rule.or_minus_one) parts.push_back("-1 or");
  if (rule.min) parts.push_back((rule.min_excluded ? "above " : "at least ") + number_text(*rule.min));
  if (rule.max) parts.push_back((rule.max_excluded ? "and below " : "and at most ") + number_text(*rule.max));
  return join(parts, " ");
}

std::string expected_but_found(const Field& field, const std::string& found) {
  const std::string rule = describe_rule(field.rule);
  const std::string none = field.optional ? (rule.empty() ? " or None" : ", or None") : "";
  return field.key + ": expected " + describe_kind(field) + (rule.empty() ? "" : ", " + rule) + none + "; found " +
         found;
}

std::string to_toml_value(const FieldValue& value) {
  struct Printer {
    std::string operator()(None) const { return "None"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return shortest(v); }
    std::string operator()(const std::string& v) const { return toml_string(v); }
    std::string operator()(const StringList& v) const { return bracketed(v); }
    std::string operator()(const StringLists& v) const { return bracketed(v); }
  };
  return std::visit(Printer{}, value);
}

std::optional<std::string> find_fault(const Field& field, const FieldValue& value) {
  if (const auto* number = std::get_if<double>(&value)) {
    if (!std::isfinite(*number)) return expected_but_found(field, std::isnan(*number) ? "nan" : "an infinity");
    if (!in_bounds(field.rule, *number)) return expected_but_found(field, to_toml_value(value));
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    if (!in_bounds(field.rule, static_cast<double>(*integer))) return expected_but_found(field, to_toml_value(value));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    if (auto fault = string_fault(field, value, *text)) return fault;
  } else if (const auto* list = std::get_if<StringList>(&value)) {
    for (const std::string& entry : *list)
      if (auto fault = string_fault(field, value, entry)) return fault;
  } else if (const auto* lists = std::get_if<StringLists>(&value)) {
    for (const StringList& entries : *lists)
      for (const std::string& entry : entries)
        if (auto fault = bytes_fault(field, entry)) return fault;
  }
  if (field.status.support == Support::kNotBuilt && value != default_value(field))
    return unusable(field, value, field.status.reason);
  return std::nullopt;
}

std::optional<FieldValue> parse_text(const Field& field, std::string_view text, std::string& expected) {
  expected = describe_kind(field);
  if (field.optional) {
    if (text == "None") return None{};
    expected += " or None";
  }
  switch (field.kind) {
    case ValueKind::kBool:
      return to_bool(text);
    case ValueKind::kInt:
      if (const auto value = to_int(text)) return *value;
      return std::nullopt;
    case ValueKind::kFloat:
      if (const auto value = to_double(text)) return *value;
      return std::nullopt;
    case ValueKind::kString:
      return FieldValue(std::string(text));
    case ValueKind::kStringList:
      return text.empty() ? FieldValue(StringList{}) : FieldValue(split(text, ','));
    case ValueKind::kStringLists:
      expected += ", which only a TOML file can spell";
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace titan::config
