// Unicode general categories and the classes made of them, in the version that the `tokenizers` package's regexes use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace titan::data {

// Indices of the categories in kCategoryRuns.
inline constexpr std::string_view kCategoryNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                      "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                      "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};

// Runs of one category, ascending: first code point << 5 | category. In unicode_table.cpp, which a script makes.
extern const std::uint32_t kCategoryRuns[];
extern const std::size_t kNumCategoryRuns;

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

struct CodeRange {
  char32_t first;
  char32_t last;
  bool operator==(const CodeRange&) const = default;
};
using CodeRanges = std::vector<CodeRange>;  // ascending, not touching

// The code points of a general category ("Lu") or of a group of them ("L"); nothing for any other name.
std::optional<CodeRanges> category_ranges(std::string_view name);

// In `a` but not in `b`.
CodeRanges difference(const CodeRanges& a, const CodeRanges& b);

bool contains(const CodeRanges& ranges, char32_t point);

// Property White_Space: what \s means.
const CodeRanges& whitespace_ranges();

// What \w means to Rust's regex library: Alphabetic, marks, decimal digits, connectors, joiners. Added tokens with
// single_word look at it.
const CodeRanges& word_ranges();

}  // namespace titan::data
