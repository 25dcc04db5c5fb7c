// Parses JSON of files that anybody may have written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace titan {

// Most arrays and objects inside each other. The parser itself has no limit, but copying and printing a value recurse,
// so that a small file of brackets would overflow the stack.
inline constexpr std::size_t kDeepestJson = 500;

// True if the text has more than `deepest` arrays and objects inside each other.
inline bool is_too_deep(std::string_view json, std::size_t deepest = kDeepestJson) {
  const auto is_open = [](char c) { return c == '[' || c == '{'; };
  if (static_cast<std::size_t>(std::ranges::count_if(json, is_open)) <= deepest) return false;
  std::size_t depth = 0;
  bool in_text = false;
  for (std::size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (in_text) {
      if (c == '\\') ++at;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (is_open(c)) {
      if (++depth > deepest) return true;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

// Returns the value of the text. `Json` is one of nlohmann's. Throws its parse_error, also if the text is too deep.
template <typename Json>
Json parse_json(std::string_view text) {
  if (is_too_deep(text))
    throw Json::parse_error::create(
        101, std::size_t{0}, "more than " + std::to_string(kDeepestJson) + " arrays and objects are inside each other",
        nullptr);
  return Json::parse(text);
}

// Same for text that need not be JSON: a value for which is_discarded() is true stands for an error.
template <typename Json>
Json try_parse_json(std::string_view text) {
  if (is_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Returns the integer; nullopt for one beyond 64 bits, a number with a fraction and anything else. nlohmann's get()
// would cut these off.
template <typename Json>
std::optional<std::int64_t> integer_of(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.template get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return json.template get<std::int64_t>();
}

// Returns the integer of an object's key; nullopt if there is none, or if `row` is not an object.
template <typename Json>
std::optional<std::int64_t> find_integer(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found == row.end() ? std::nullopt : integer_of(*found);
}

}  // namespace titan
