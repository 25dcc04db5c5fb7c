#include "data/text/code_points.h"

#include "base/utf8.h"

namespace titan::data {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

unsigned char byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Returns the length of the ill-formed sequence at text[0]: the longest prefix of a well-formed one, at least 1.
std::size_t ill_formed_length(std::string_view text) {
  const unsigned char lead = byte_at(text, 0);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // No overlong forms, no surrogates, nothing above U+10FFFF (Unicode 15, table 3-7).
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (text.size() < 2 || byte_at(text, 1) < low || byte_at(text, 1) > high) return 1;
  std::size_t at = 2;
  while (at < length && at < text.size() && is_continuation(byte_at(text, at))) ++at;
  return at;
}

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const unsigned char lead = byte_at(text, at++);
  if (lead < 0x80) return lead;
  const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t point = lead & (0x3F >> more);
  for (int i = 0; i < more; ++i) point = point << 6 | (byte_at(text, at++) & 0x3F);
  return point;
}

char32_t previous_code_point(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (is_continuation(byte_at(text, at))) --at;
  return next_code_point(text, at);
}

void append_utf8(std::string& text, char32_t point) {
  const auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    add(point);
    return;
  }
  if (point < 0x800) {
    add(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      add(0xE0 | point >> 12);
    } else {
      add(0xF0 | point >> 18);
      add(0x80 | (point >> 12 & 0x3F));
    }
    add(0x80 | (point >> 6 & 0x3F));
  }
  add(0x80 | (point & 0x3F));
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  while (const auto bad = find_invalid_utf8(text)) {
    out.append(text.substr(0, *bad)).append(kReplacement);
    text.remove_prefix(*bad);
    text.remove_prefix(ill_formed_length(text));
  }
  return out.append(text);
}

ValidText::ValidText(std::string_view text) : view_(text) {
  if (!find_invalid_utf8(text)) return;
  repaired_ = replace_invalid_utf8(text);
  view_ = repaired_;
}

}  // namespace titan::data
