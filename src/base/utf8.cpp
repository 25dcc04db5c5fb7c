#include "base/utf8.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace titan {
namespace {

// Returns the length of the UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return continues(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xe0 && byte(1) < 0xa0) return 0;   // overlong
    if (lead == 0xed && byte(1) >= 0xa0) return 0;  // surrogate
    return 3;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xf0 && byte(1) < 0x90) return 0;   // overlong
    if (lead == 0xf4 && byte(1) >= 0x90) return 0;  // beyond U+10FFFF
    return 4;
  }
  return 0;
}

// Appends the byte as "\x1B".
void append_byte(std::string& out, char byte) {
  char text[8];
  std::snprintf(text, sizeof(text), "\\x%02X", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  out += text;
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    while (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if (word & kHighBits) break;
      at += sizeof(word);
    }
    if (at >= text.size()) break;
    const std::size_t length = utf8_sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string escape_invalid_utf8(std::string_view text) {
  std::string out;
  while (const auto bad = find_invalid_utf8(text)) {
    append_byte(out.append(text.substr(0, *bad)), text[*bad]);
    text.remove_prefix(*bad + 1);
  }
  return out.append(text);
}

std::string printable(std::string_view text) {
  const std::string valid = escape_invalid_utf8(text);
  std::string out;
  for (std::size_t at = 0; at < valid.size(); ++at) {
    const auto byte = static_cast<unsigned char>(valid[at]);
    // U+0080 to U+009F, two bytes, are control characters, too.
    const bool is_pair = byte == 0xC2 && at + 1 < valid.size() && static_cast<unsigned char>(valid[at + 1]) < 0xA0;
    if (is_pair) append_byte(out, valid[at++]);
    if (is_pair || byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')) {
      append_byte(out, valid[at]);
    } else {
      out.push_back(valid[at]);
    }
  }
  return out;
}

}  // namespace titan
