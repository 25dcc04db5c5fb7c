#include "data/tokenizer/byte_level.h"

#include "data/text/code_points.h"

namespace titan::data {
namespace {

// True for bytes that are their own character; the others are numbered from U+0100 on.
bool is_printable(int byte) { return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }

constexpr char32_t kFirstSubstitute = 0x100;

// Returns the inverse of byte_characters(), with -1 for a character of no byte.
std::array<int, 2 * kFirstSubstitute> make_character_bytes() {
  std::array<int, 2 * kFirstSubstitute> bytes;
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[byte_characters()[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}

}  // namespace

const std::array<char32_t, 256>& byte_characters() {
  static const auto characters = [] {
    std::array<char32_t, 256> made{};
    char32_t substitute = kFirstSubstitute;
    for (int byte = 0; byte < 256; ++byte) {
      made[static_cast<std::size_t>(byte)] = is_printable(byte) ? static_cast<char32_t>(byte) : substitute++;
    }
    return made;
  }();
  return characters;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  static const auto character_bytes = make_character_bytes();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const char32_t point = next_code_point(token, at);
    if (point >= character_bytes.size() || character_bytes[point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(character_bytes[point]));
  }
  return bytes;
}

}  // namespace titan::data
