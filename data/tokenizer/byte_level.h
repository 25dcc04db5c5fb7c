// The byte-level alphabet of GPT-2: one printable character for every byte, in which tokenizer.json spells its tokens.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace titan::data {

// The character that stands for a byte.
const std::array<char32_t, 256>& byte_characters();

// The bytes that a token's text (valid UTF-8) stands for; nothing when it has a character of no byte.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace titan::data
