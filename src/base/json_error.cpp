#include "base/json_error.h"

#include <algorithm>
#include <charconv>

namespace titan {
namespace {

// Removes the text up to and including `mark`, and returns what was before it. Without `mark`:
// removes nothing, returns "".
std::string_view take_until(std::string_view& text, std::string_view mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

std::int64_t number_of(std::string_view digits) {
  std::int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

JsonError explain_json_error(std::string_view message) {
  JsonError error;
  if (message.starts_with("[json.exception.")) take_until(message, "] ");
  if (constexpr std::string_view kPlace = "parse error at line "; message.starts_with(kPlace)) {
    message.remove_prefix(kPlace.size());
    error.line = number_of(take_until(message, ", column "));
    error.column = number_of(take_until(message, ": "));
  }
  if (message.starts_with("attempting to parse an empty input")) {
    error.reason = "there is no text";
    return error;
  }
  // "syntax error while parsing object key - invalid literal; last read: '{t'; expected string literal"
  if (message.starts_with("syntax error while parsing ")) take_until(message, " - ");
  std::string_view rest = message;
  const std::string_view what = take_until(rest, "; last read: ");
  if (what.empty()) {
    error.reason = message;
    return error;
  }
  // The text that was read may contain the mark itself, so search from the end.
  const auto expected = rest.rfind("'; expected ");
  const std::string_view read = expected == std::string_view::npos ? rest : rest.substr(0, expected + 1);
  error.reason = std::string(what) + " at " + std::string(read);
  if (expected != std::string_view::npos) error.reason.append(rest.substr(expected + 1));
  return error;
}

std::string json_error_text(std::string_view message) {
  const JsonError error = explain_json_error(message);
  if (error.line == 0) return error.reason;
  return "line " + std::to_string(error.line) + ", column " + std::to_string(error.column) + ": " + error.reason;
}

}  // namespace titan
