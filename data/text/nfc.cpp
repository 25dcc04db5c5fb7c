#include "data/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "data/text/code_points.h"
#include "data/text/unicode_category.h"

namespace titan::data {
namespace {

constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr std::uint16_t kNone = 0xFFFF;  // an index of utf8proc that is not set
// Code points below this one are in form C, whatever their neighbors.
constexpr char32_t kFirstMark = 0x300;

// Characters that utf8proc reorders but the package's older tables do not.
const CodeRanges kNewCharacters = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

// Effect of a code point on its neighbors.
enum class Role {
  kWall,   // none: no composition or reordering crosses it
  kBase,   // changes only if something after it is active
  kActive  // may reorder, decompose or compose
};

bool is_jamo(char32_t point) { return point >= 0x1100 && point <= 0x11FF; }
bool is_hangul_syllable(char32_t point) { return point >= 0xAC00 && point <= 0xD7A3; }

Role role_of(char32_t point) {
  if (point < kFirstMark) return Role::kBase;
  if (is_hangul_syllable(point)) return Role::kBase;
  if (is_jamo(point)) return Role::kActive;
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(point));
  const bool inert = property.combining_class == 0 && property.decomp_seqindex == kNone && property.comb_index == kNone;
  return inert || contains(kNewCharacters, point) ? Role::kWall : Role::kActive;
}

int combining_class(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

// Appends form C of `run`, which has no wall. Sorts the marks without utf8proc, whose sort takes quadratic time.
void append_composed(std::string_view run, std::vector<utf8proc_int32_t>& points, std::string& out) {
  points.clear();
  for (std::size_t at = 0; at < run.size();) {
    const auto point = static_cast<utf8proc_int32_t>(next_code_point(run, at));
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(point, parts, std::size(parts), kCompose, &boundary);
    TITAN_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)), "utf8proc_decompose_char");
    points.insert(points.end(), parts, parts + count);
  }
  const auto is_starter = [](utf8proc_int32_t point) { return combining_class(point) == 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if_not(begin, points.end(), is_starter);
    const auto end = std::find_if(begin, points.end(), is_starter);
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  const auto count = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kCompose);
  TITAN_CHECK(count >= 0, std::string("utf8proc: ") + utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  // U+0300 and above begin with this byte or a higher one.
  return std::ranges::none_of(text, [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; });
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  std::vector<utf8proc_int32_t> points;
  std::size_t run = 0;  // start of the characters since the last wall
  bool active = false;
  const auto flush = [&](std::size_t end) {
    if (active) {
      append_composed(text.substr(run, end - run), points, out);
    } else {
      out.append(text, run, end - run);
    }
    active = false;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const Role role = role_of(next_code_point(text, at));
    active = active || role == Role::kActive;
    if (role != Role::kWall) continue;
    flush(begin);
    out.append(text, begin, at - begin);
    run = at;
  }
  flush(text.size());
  return out;
}

}  // namespace titan::data
