// Values of keys: their types, conversion to and from text, and checks against a key's rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace titan::config {

struct Field;  // fields.h
struct Rule;

struct None {
  bool operator==(const None&) const = default;
};
using StringList = std::vector<std::string>;
using StringLists = std::vector<StringList>;

// A value of any key. None only if the key is optional.
using FieldValue = std::variant<None, bool, std::int64_t, double, std::string, StringList, StringLists>;

enum class ValueKind { kBool, kInt, kFloat, kString, kStringList, kStringLists };

// "an integer", "true or false", ...
std::string describe_kind(const Field& field);

// "at least 1", "one of none, full"; empty if the type says everything.
std::string describe_rule(const Rule& rule);

// "training.steps: expected an integer, at least 1; found FOUND"
std::string expected_but_found(const Field& field, const std::string& found);

// Returns the value as TOML writes it ("text" in quotes); None as None.
std::string to_toml_value(const FieldValue& value);

// Returns the fault of a value of the right type, with a fix; nullopt if it is valid.
std::optional<std::string> find_fault(const Field& field, const FieldValue& value);

// Parses text of a command line as a value of the field; a boolean may also be True, False, 1 or 0.
// On failure returns nullopt and describes valid values in `expected`.
std::optional<FieldValue> parse_text(const Field& field, std::string_view text, std::string& expected);

}  // namespace titan::config
