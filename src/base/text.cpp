#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace titan {
namespace {

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text)
    out.push_back(c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return out;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbors cost 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = folded(name);
  const std::size_t limit = std::max<std::size_t>(2, wanted.size() / 3);
  std::optional<std::string> best;
  std::size_t best_distance = limit + 1;
  for (const auto& candidate : candidates) {
    // Each character that one has more costs an edit. Without this shortcut a long name takes minutes.
    const std::size_t a = wanted.size(), b = candidate.size();
    if (std::max(a, b) - std::min(a, b) >= best_distance) continue;
    const std::size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best_distance && distance < std::max(wanted.size(), candidate.size())) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string upper_case(std::string_view text) {
  std::string out;
  for (const char c : text) out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return out;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string with_thousands(std::int64_t value) {
  const auto magnitude =
      static_cast<std::uint64_t>(value);  // negating as unsigned is defined for the smallest value too
  std::string digits = std::to_string(value < 0 ? 0 - magnitude : magnitude);
  group_thousands(digits, 0);
  return value < 0 ? "-" + digits : digits;
}

void group_thousands(std::string& text, std::size_t begin) {
  for (std::size_t at = std::min(text.find_first_not_of("0123456789", begin), text.size()); at > begin + 3;)
    text.insert(at -= 3, 1, ',');
}

std::string counted(std::int64_t count, std::string_view thing) {
  return with_thousands(count).append(" ").append(thing).append(count == 1 ? "" : "s");
}

std::string in_brackets(std::string_view text) {
  return text.empty() ? std::string() : std::string(" (").append(text).append(")");
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), unit == 0 ? "%.0f %s" : "%.2f %s", bytes, kUnits[unit]);
  return buffer;
}

std::string format_duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  char buffer[64];
  if (total >= 3600)
    std::snprintf(buffer, sizeof(buffer), "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                  static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  else
    std::snprintf(buffer, sizeof(buffer), "%lld:%02lld", static_cast<long long>(total / 60),
                  static_cast<long long>(total % 60));
  return buffer;
}

std::string date_text(std::int64_t unix_time) {
  const auto time = static_cast<std::time_t>(unix_time);
  std::tm parts{};
  char buffer[64];
  if (::localtime_r(&time, &parts) == nullptr) return std::to_string(unix_time);
  return {buffer, std::strftime(buffer, sizeof(buffer), "%Y-%m-%d %H:%M:%S", &parts)};
}

}  // namespace titan
