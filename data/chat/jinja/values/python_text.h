// Methods of Python's str, on valid UTF-8. Positions and lengths count characters (code points) unless they say bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titan::data::jinja {

using Pieces = std::vector<std::string_view>;

// True for what str.isspace() accepts.
bool is_python_space(char32_t point);

std::size_t count_characters(std::string_view text);

// Returns up to `count` characters from character `from`.
std::string_view characters(std::string_view text, std::size_t from, std::size_t count);
Pieces all_characters(std::string_view text);

enum class Side { kLeft, kRight, kBoth };

// Removes white space, or the characters of `of`, from an end. Views into `text`.
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, Side side, std::string_view of);

// Splits at runs of white space, at most `limit` times (negative: no limit), from the left or the right.
Pieces split_words(std::string_view text, std::ptrdiff_t limit, bool from_right);
// Splits at `separator`, which must not be empty.
Pieces split(std::string_view text, std::string_view separator, std::ptrdiff_t limit, bool from_right);
// Splits at the line ends that str.splitlines() knows.
Pieces split_lines(std::string_view text, bool keep_ends);

// Replaces at most `limit` times (negative: no limit). Throws Fault if the result is too large.
std::string replace(std::string_view text, std::string_view old, std::string_view replacement, std::ptrdiff_t limit);
std::size_t count_occurrences(std::string_view text, std::string_view part);
std::string reversed(std::string_view text);

// Letter case with Unicode's full mappings ("ß" becomes "SS"), by the tables of utf8proc.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// Makes the first letter of each word a capital, as str.title() does: a word starts after what is not a letter.
std::string to_title(std::string_view text);
// Makes the first character a capital and the others lower case.
std::string capitalize(std::string_view text);

// Returns the number that int(text) makes; nullopt if it is not one, or beyond 64 bits. Only ASCII digits.
std::optional<std::int64_t> parse_integer(std::string_view text);
// Returns the number that float(text) makes; nullopt if it is not one.
std::optional<double> parse_real(std::string_view text);

}  // namespace titan::data::jinja
