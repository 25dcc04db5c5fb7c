#include "data/text/unicode_category.h"

#include <algorithm>
#include <iterator>

namespace titan::data {
namespace {

template <typename Wanted>
CodeRanges ranges_where(Wanted wanted) {
  CodeRanges ranges;
  for (std::size_t i = 0; i < kNumCategoryRuns; ++i) {
    if (!wanted(kCategoryNames[kCategoryRuns[i] & 31])) continue;
    const auto first = static_cast<char32_t>(kCategoryRuns[i] >> 5);
    const auto next = i + 1 < kNumCategoryRuns ? static_cast<char32_t>(kCategoryRuns[i + 1] >> 5) : kLastCodePoint + 1;
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = next - 1;
    } else {
      ranges.push_back({first, next - 1});
    }
  }
  return ranges;
}

CodeRanges merged(CodeRanges ranges, const CodeRanges& more) {
  ranges.insert(ranges.end(), more.begin(), more.end());
  std::ranges::sort(ranges, {}, &CodeRange::first);
  CodeRanges out;
  for (const CodeRange& range : ranges) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

}  // namespace

std::optional<CodeRanges> category_ranges(std::string_view name) {
  const bool known =
      std::ranges::any_of(kCategoryNames, [&](std::string_view c) { return c == name || c.substr(0, 1) == name; });
  if (!known) return std::nullopt;
  return ranges_where([&](std::string_view category) { return category.starts_with(name); });
}

CodeRanges difference(const CodeRanges& a, const CodeRanges& b) {
  CodeRanges out;
  auto remove = b.begin();
  for (const CodeRange& range : a) {
    char32_t at = range.first;
    while (remove != b.end() && remove->last < at) ++remove;
    for (auto hole = remove; hole != b.end() && hole->first <= range.last; ++hole) {
      if (hole->first > at) out.push_back({at, hole->first - 1});
      at = hole->last + 1;
    }
    if (at <= range.last) out.push_back({at, range.last});
  }
  return out;
}

bool contains(const CodeRanges& ranges, char32_t point) {
  const auto after = std::ranges::upper_bound(ranges, point, {}, &CodeRange::first);
  return after != ranges.begin() && point <= std::prev(after)->last;
}

const CodeRanges& whitespace_ranges() {
  static const CodeRanges ranges = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                    {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                    {0x205F, 0x205F}, {0x3000, 0x3000}};
  return ranges;
}

const CodeRanges& word_ranges() {
  // The joiners, and Alphabetic characters that are not letters, letter numbers or marks: circled, parenthesized and
  // squared letters.
  static const CodeRanges extra = {
      {0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  static const CodeRanges ranges = merged(ranges_where([](std::string_view c) {
                                            return c[0] == 'L' || c[0] == 'M' || c == "Nd" || c == "Nl" || c == "Pc";
                                          }),
                                          extra);
  return ranges;
}

}  // namespace titan::data
