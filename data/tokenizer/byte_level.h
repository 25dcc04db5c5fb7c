// The byte-level alphabet of GPT-2: one printable character for every byte. tokenizer.json spells its tokens in it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace titan::data {

// Returns the character of each byte.
const std::array<char32_t, 256>& byte_characters();

// Returns the bytes that a token's text (valid UTF-8) spells; nullopt if it has a character of no byte.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace titan::data
