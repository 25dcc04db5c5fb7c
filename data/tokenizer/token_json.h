// Token ids and texts as lines of JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan::data {

// Returns text like "[1,2,3]".
std::string ids_to_json(std::span<const std::int32_t> ids);

// Throws DataError when `line` is not a JSON array of token ids.
std::vector<std::int32_t> ids_from_json(std::string_view line);

// Returns "..." with quotes and escapes; `text` must be valid UTF-8.
std::string string_to_json(const std::string& text);

// Returns {"text":"..."}; `text` must be valid UTF-8.
std::string text_to_json(const std::string& text);

}  // namespace titan::data
