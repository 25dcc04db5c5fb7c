#include "generate/text_stream.h"

#include <algorithm>
#include <string_view>

namespace titan::generate {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
// Three bytes of an incomplete four-byte character may be present, and a tokenizer may replace each of them.
constexpr int kMostReplaced = 3;
// Each token is decoded together with those before it: enough for correct text, few enough to be fast.
constexpr std::size_t kLongestWindow = 64, kKept = 8;

// Returns the end of the text that no later token can change.
std::size_t end_of_certain(std::string_view text) {
  for (int i = 0; i < kMostReplaced && text.ends_with(kReplacement); ++i) text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

TextStream::TextStream(Decode decode, std::span<const std::int32_t> before) : decode_(std::move(decode)) {
  const auto last = before.last(std::min(kKept, before.size()));
  window_.assign(last.begin(), last.end());
  taken_ = decode_(window_).size();
}

std::string TextStream::add(std::int32_t id) {
  if (window_.size() >= kLongestWindow && decode_(window_).size() == taken_) {
    window_.erase(window_.begin(), window_.end() - kKept);
    taken_ = decode_(window_).size();
  }
  window_.push_back(id);
  const std::string text = decode_(window_);
  return take(end_of_certain(text), text);
}

std::string TextStream::finish() {
  const std::string text = decode_(window_);
  return take(text.size(), text);
}

std::string TextStream::take(std::size_t end, const std::string& text) {
  if (end <= taken_) return {};
  const std::size_t begin = taken_;
  taken_ = end;
  return text.substr(begin, end - begin);
}

}  // namespace titan::generate
