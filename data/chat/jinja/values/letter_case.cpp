#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "data/chat/jinja/values/python_text.h"
#include "data/text/code_points.h"

namespace titan::data::jinja {
namespace {

constexpr char32_t kIota = 0x399;
constexpr char32_t kSigma = 0x3A3;

struct FullMapping {
  char32_t point;
  std::array<char32_t, 3> upper;  // 0 after the end
};

// Characters whose upper case has several code points (Unicode's SpecialCasing.txt), ascending; U+1F80 to U+1FAF follow
// a rule instead.
constexpr FullMapping kFullMappings[] = {
    {0xDF, {'S', 'S'}},
    {0x149, {0x2BC, 'N'}},
    {0x1F0, {'J', 0x30C}},
    {0x390, {kIota, 0x308, 0x301}},
    {0x3B0, {0x3A5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1E96, {'H', 0x331}},
    {0x1E97, {'T', 0x308}},
    {0x1E98, {'W', 0x30A}},
    {0x1E99, {'Y', 0x30A}},
    {0x1E9A, {'A', 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, kIota}},
    {0x1FB3, {0x391, kIota}},
    {0x1FB4, {0x386, kIota}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, kIota}},
    {0x1FBC, {0x391, kIota}},
    {0x1FC2, {0x1FCA, kIota}},
    {0x1FC3, {0x397, kIota}},
    {0x1FC4, {0x389, kIota}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, kIota}},
    {0x1FCC, {0x397, kIota}},
    {0x1FD2, {kIota, 0x308, 0x300}},
    {0x1FD3, {kIota, 0x308, 0x301}},
    {0x1FD6, {kIota, 0x342}},
    {0x1FD7, {kIota, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, kIota}},
    {0x1FF3, {0x3A9, kIota}},
    {0x1FF4, {0x38F, kIota}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, kIota}},
    {0x1FFC, {0x3A9, kIota}},
    {0xFB00, {'F', 'F'}},
    {0xFB01, {'F', 'I'}},
    {0xFB02, {'F', 'L'}},
    {0xFB03, {'F', 'F', 'I'}},
    {0xFB04, {'F', 'F', 'L'}},
    {0xFB05, {'S', 'T'}},
    {0xFB06, {'S', 'T'}},
    {0xFB13, {0x544, 0x546}},
    {0xFB14, {0x544, 0x535}},
    {0xFB15, {0x544, 0x53B}},
    {0xFB16, {0x54E, 0x546}},
    {0xFB17, {0x544, 0x53D}},
};

// Characters whose capital is one character although their upper case is two.
constexpr char32_t kSingleCapitals[] = {0x1FB3, 0x1FBC, 0x1FC3, 0x1FCC, 0x1FF3, 0x1FFC};

const FullMapping* find_mapping(char32_t point) {
  if (point < 0xDF) return nullptr;
  const auto* found = std::ranges::lower_bound(kFullMappings, point, {}, &FullMapping::point);
  return found != std::end(kFullMappings) && found->point == point ? found : nullptr;
}

bool has_iota_below(char32_t point) { return point >= 0x1F80 && point <= 0x1FAF; }

char32_t simple_upper(char32_t point) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point)));
}

char32_t simple_lower(char32_t point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

void append_upper(std::string& out, char32_t point) {
  if (has_iota_below(point)) {
    constexpr std::array<char32_t, 3> kBases = {0x1F08, 0x1F28, 0x1F68};
    append_utf8(out, kBases[(point - 0x1F80) >> 4] + (point & 7));
    append_utf8(out, kIota);
  } else if (const FullMapping* mapping = find_mapping(point)) {
    for (const char32_t part : mapping->upper)
      if (part != 0) append_utf8(out, part);
  } else {
    append_utf8(out, simple_upper(point));
  }
}

void append_capital(std::string& out, char32_t point) {
  const FullMapping* mapping = find_mapping(point);
  if (mapping == nullptr || std::ranges::find(kSingleCapitals, point) != std::end(kSingleCapitals)) {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(point))));
    return;
  }
  if (point == 0x149) return append_upper(out, point);  // the letter follows an apostrophe
  append_utf8(out, mapping->upper[0]);
  for (const char32_t part : {mapping->upper[1], mapping->upper[2]})
    if (part != 0) append_utf8(out, part == kIota ? 0x345 : simple_lower(part));
}

utf8proc_category_t category(char32_t point) { return utf8proc_category(static_cast<utf8proc_int32_t>(point)); }

// Property Cased: letters with case, and what is like them (Other_Lowercase, Other_Uppercase).
bool is_cased(char32_t point) {
  constexpr char32_t kOther[][2] = {
      {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},    {0x345, 0x345},
      {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},  {0x207F, 0x207F},
      {0x2090, 0x209C}, {0x2160, 0x217F}, {0x24B6, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},  {0xA770, 0xA770},
      {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  const utf8proc_category_t kind = category(point);
  if (kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT) return true;
  return std::ranges::any_of(kOther, [&](const auto& range) { return point >= range[0] && point <= range[1]; });
}

// Property Case_Ignorable: what may be between the letters of a word.
bool is_ignorable(char32_t point) {
  constexpr std::u32string_view kMarks = U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027";
  switch (category(point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kMarks.find(point) != std::u32string_view::npos;
  }
}

// True if the sigma text[from, to) ends a word: a letter is before it and none follows.
bool is_final_sigma(std::string_view text, std::size_t from, std::size_t to) {
  bool has_letter = false;
  while (from > 0) {
    const char32_t before = previous_code_point(text, from);
    if (!is_ignorable(before)) {
      has_letter = is_cased(before);
      break;
    }
    do --from;
    while ((static_cast<unsigned char>(text[from]) & 0xC0) == 0x80);
  }
  if (!has_letter) return false;
  while (to < text.size()) {
    const char32_t after = next_code_point(text, to);
    if (!is_ignorable(after)) return !is_cased(after);
  }
  return true;
}

// Appends the lower case of text[from, to), which is one character.
void append_lower(std::string& out, std::string_view text, std::size_t from, std::size_t to, char32_t point) {
  if (point == 0x130) {
    out += "i\xcc\x87";  // keeps its dot
  } else if (point == kSigma) {
    append_utf8(out, is_final_sigma(text, from, to) ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, simple_lower(point));
  }
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const char32_t point = next_code_point(text, at);
    append_lower(out, text, from, at, point);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const char32_t point = next_code_point(text, at);
    if (in_word) {
      append_lower(out, text, from, at, point);
    } else {
      append_capital(out, point);
    }
    in_word = is_cased(point);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const char32_t point = next_code_point(text, at);
    if (from == 0) {
      append_capital(out, point);
    } else {
      append_lower(out, text, from, at, point);
    }
  }
  return out;
}

}  // namespace titan::data::jinja
