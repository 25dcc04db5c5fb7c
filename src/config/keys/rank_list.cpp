#include "config/keys/rank_list.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace titan::config {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

RankList::RankList(const std::string& text) {
  if (trim(text) == "all") return;
  for (const std::string& part : split(text, ',')) {
    const auto words = split(part, '-');
    const auto first = number(trim(words.front())), last = number(trim(words.back()));
    if (words.size() > 2 || !first || !last || *first > *last)
      throw ConfigError("\"" + text +
                        "\" names no ranks: write \"all\", or numbers and ranges from 0, as in \"0,4-7\"");
    ranges_.emplace_back(*first, *last);
  }
}

bool RankList::contains(std::int64_t rank) const {
  return ranges_.empty() ||
         std::ranges::any_of(ranges_, [&](const auto& range) { return range.first <= rank && rank <= range.second; });
}

std::int64_t RankList::highest() const {
  std::int64_t highest = -1;
  for (const auto& [first, last] : ranges_) highest = std::max(highest, last);
  return highest;
}

}  // namespace titan::config
