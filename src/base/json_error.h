// Explains errors of a JSON parser in words for users.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace titan {

struct JsonError {
  std::int64_t line = 0;  // both 1-based, in the parsed text; 0 if the parser names no position
  std::int64_t column = 0;
  std::string reason;
};

// Parses the message of an exception of nlohmann's library.
JsonError explain_json_error(std::string_view message);

// Returns "line 3, column 14: unexpected '}'; expected a string", without the position if it is unknown.
std::string json_error_text(std::string_view message);

}  // namespace titan
