// What a JSON parser finds wrong, in words for users.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace titan {

struct JsonError {
  std::int64_t line = 0;  // both 1-based, in the text that was parsed; 0: the parser names no place
  std::int64_t column = 0;
  std::string reason;
};

// From the message of an exception of nlohmann's library, whose words are its parser's.
JsonError explain_json_error(std::string_view message);

// "line 3, column 14: unexpected '}'; expected a string", without the place where none is named.
std::string json_error_text(std::string_view message);

}  // namespace titan
