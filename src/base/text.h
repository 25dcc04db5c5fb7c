// Small helpers on text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

// Returns the candidate nearest to `name` by Damerau-Levenshtein distance (case and '-'/'_' do not
// count); nullopt if none is near enough to be a likely typo (a third of the length, at least 2 edits).
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

// "a, b, c"
std::string join(std::span<const std::string> parts, std::string_view separator);

std::vector<std::string> split(std::string_view text, char separator);

std::string_view trim(std::string_view text);

// Returns `text` with the letters of ASCII in upper case.
std::string upper_case(std::string_view text);

// 1234567 -> "1,234,567"
std::string with_thousands(std::int64_t value);

// Inserts the commas of "1,234,567" into the digits of `text` that begin at `begin` and end at the
// first other character.
void group_thousands(std::string& text, std::size_t begin);

// 1 -> "1 rank", 2000 -> "2,000 ranks"; the plural of `thing` must end in s.
std::string counted(std::int64_t count, std::string_view thing);

// Returns " (text)"; empty if `text` is empty.
std::string in_brackets(std::string_view text);

// 1536 -> "1.50 KiB"
std::string format_bytes(double bytes);

// 3725 -> "1:02:05"; 65 -> "1:05"
std::string format_duration(double seconds);

// Seconds since 1970 -> "2026-11-22 13:02:11", in local time.
std::string date_text(std::int64_t unix_time);

}  // namespace titan
