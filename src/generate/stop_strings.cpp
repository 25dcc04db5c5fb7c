#include "generate/stop_strings.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace titan::generate {
namespace {

// Returns the length of the longest end of `text` with which `string` begins.
std::size_t overlap(std::string_view text, std::string_view string) {
  for (std::size_t length = std::min(text.size(), string.size()); length > 0; --length)
    if (text.ends_with(string.substr(0, length))) return length;
  return 0;
}

}  // namespace

std::string StopStrings::add(const std::string& piece) {
  if (found_) return "";
  held_ += piece;
  std::pair<std::size_t, std::size_t> first = {std::string::npos, 0};  // where a stop string ends and begins
  std::size_t kept = 0;
  for (const std::string& string : strings_) {
    const std::size_t begin = held_.find(string);
    if (begin != std::string::npos) first = std::min(first, {begin + string.size(), begin});
    kept = std::max(kept, overlap(held_, string));
  }
  found_ = first.first != std::string::npos;
  std::string out = held_.substr(0, found_ ? first.second : held_.size() - kept);
  held_ = found_ ? "" : held_.substr(out.size());
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, ""); }

}  // namespace titan::generate
