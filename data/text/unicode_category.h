// Unicode general categories and the classes made of them, in the version that the `tokenizers` package's regexes use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace titan::data {

// Names of the categories, by their index in kCategoryRuns.
inline constexpr std::string_view kCategoryNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                      "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                      "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};

// Runs of one category, ascending: first code point << 5 | category. Defined in unicode_table.cpp, which a script
// makes.
extern const std::uint32_t kCategoryRuns[];
extern const std::size_t kNumCategoryRuns;

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

struct CodeRange {
  char32_t first;
  char32_t last;
  bool operator==(const CodeRange&) const = default;
};
using CodeRanges = std::vector<CodeRange>;  // ascending, not touching

// Returns the code points of a general category ("Lu") or of a group of them ("L"); nullopt for any other name.
std::optional<CodeRanges> category_ranges(std::string_view name);

// Returns the code points in `a` but not in `b`.
CodeRanges difference(const CodeRanges& a, const CodeRanges& b);

bool contains(const CodeRanges& ranges, char32_t point);

// Code points of property White_Space: the meaning of \s.
const CodeRanges& whitespace_ranges();

// Code points that \w matches in Rust's regex library: Alphabetic, marks, decimal digits, connectors, joiners. Added
// tokens with single_word use it.
const CodeRanges& word_ranges();

}  // namespace titan::data
