#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>

namespace titan::fuzz {
namespace {

constexpr std::size_t kLongest = 1 << 20;
constexpr std::size_t kDeepest = 100000;

constexpr std::array<std::string_view, 24> kNumbers = {"0",
                                                       "-1",
                                                       "1",
                                                       "2147483647",
                                                       "2147483648",
                                                       "-2147483649",
                                                       "4294967295",
                                                       "4294967296",
                                                       "4294967301",
                                                       "9007199254740993",
                                                       "9223372036854775807",
                                                       "9223372036854775808",
                                                       "-9223372036854775808",
                                                       "18446744073709551615",
                                                       "18446744073709551616",
                                                       "1e308",
                                                       "-1e308",
                                                       "1e400",
                                                       "1e-320",
                                                       "NaN",
                                                       "-Infinity",
                                                       "0.5",
                                                       "-0.0",
                                                       "1e9"};
constexpr std::array<std::uint64_t, 14> kPatterns = {0,
                                                     1,
                                                     0x7f,
                                                     0x80,
                                                     0xff,
                                                     0x7fff,
                                                     0xffff,
                                                     0x7fffffff,
                                                     0x80000000,
                                                     0xffffffff,
                                                     0x100000000,
                                                     0x7fffffffffffffff,
                                                     0x8000000000000000,
                                                     0xffffffffffffffff};

// One series of changes.
class Changes {
 public:
  Changes(std::uint64_t seed, std::string text, const std::vector<std::string>& inputs, const Dictionary& words)
      : state_(seed), text_(std::move(text)), inputs_(inputs), words_(words) {}

  void change() {
    switch (below(18)) {
      case 0:
        return flip();
      case 1:
        return set(at(), std::string(1, static_cast<char>(below(256))));
      case 2:
        return text_.resize(at());
      case 3:
        return void(text_.erase(at(), 1 + below(16)));
      case 4:
        return void(text_.erase(at(), below(text_.size() + 1)));
      case 5:
        return put(at(), part(64));
      case 6:
        return put(at(), random_bytes());
      case 7:
      case 8:
        return put(at(), word());
      case 9:
        return replace_word();
      case 10:
      case 11:
      case 12:
        return replace_number();
      case 13:
        return set_pattern();
      case 14:
        return join_two();
      case 15:
        return swap_lines();
      case 16:
        return below(4) == 0 ? nest() : put(at(), word());
      default:
        return below(4) == 0 ? repeat() : replace_word();
    }
  }

  std::uint64_t below(std::uint64_t bound) {  // SplitMix64
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return bound == 0 ? 0 : (z ^ (z >> 31)) % bound;
  }
  std::string take() && { return std::move(text_); }

 private:
  std::size_t at() { return below(text_.size() + 1); }
  std::string part(std::size_t most) {
    const std::size_t begin = at();
    return text_.substr(begin, 1 + below(most));
  }
  void put(std::size_t at, std::string_view more) {
    if (text_.size() + more.size() <= kLongest) text_.insert(at, more);
  }
  void set(std::size_t at, std::string_view bytes) { text_.replace(at, bytes.size(), bytes); }
  std::string_view word() { return words_.words[below(words_.words.size())]; }

  void flip() {
    if (text_.empty()) return;
    const std::size_t place = below(text_.size());
    text_[place] = static_cast<char>(text_[place] ^ (1 << below(8)));
  }
  std::string random_bytes() {
    std::string bytes(1 + below(8), '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  }

  // Returns the place and the length of the next run of characters from a random place on; length 0 if there is none.
  template <typename IsPart>
  std::pair<std::size_t, std::size_t> find_run(IsPart is_part) {
    std::size_t begin = at();
    while (begin < text_.size() && !is_part(static_cast<unsigned char>(text_[begin]))) ++begin;
    while (begin > 0 && begin < text_.size() && is_part(static_cast<unsigned char>(text_[begin - 1]))) --begin;
    std::size_t end = begin;
    while (end < text_.size() && is_part(static_cast<unsigned char>(text_[end]))) ++end;
    return {begin, end - begin};
  }
  void replace_word() {
    const auto [begin, length] = find_run([](unsigned char c) { return std::isalnum(c) || c == '_' || c >= 0x80; });
    text_.replace(begin, length, word());
  }
  void replace_number() {
    const auto [begin, length] =
        find_run([](unsigned char c) { return std::isdigit(c) || c == '.' || c == '-' || c == '+'; });
    text_.replace(begin, length, kNumbers[below(kNumbers.size())]);
  }
  void set_pattern() {
    const std::uint64_t pattern = kPatterns[below(kPatterns.size())];
    std::string bytes;
    for (std::size_t i = 0; i < std::size_t{1} << below(4); ++i) bytes.push_back(static_cast<char>(pattern >> (8 * i)));
    set(at(), bytes);
  }
  void join_two() {
    const std::string& other = inputs_[below(inputs_.size())];
    text_.resize(at());
    put(text_.size(), std::string_view(other).substr(below(other.size() + 1)));
  }
  void swap_lines() {
    const auto line = [&] {
      const std::size_t begin = at() == 0 ? 0 : text_.rfind('\n', at()) + 1;
      return std::pair(begin, text_.substr(begin, text_.find('\n', begin) - begin + 1));
    };
    const auto [begin, first] = line();
    const std::string second = line().second;
    if (below(2) == 0) text_.erase(begin, first.size());
    put(std::min(begin, text_.size()), second);
  }

  std::string times(std::string_view what, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count && out.size() < kLongest; ++i) out += what;
    return out;
  }
  // Deep nesting is rare: it takes time, and few places depend on it.
  std::size_t count() { return below(2) == 0 ? 2 + below(200) : 1000 + below(kDeepest); }
  void nest() {
    const auto& [open, close] = words_.brackets[below(words_.brackets.size())];
    const std::size_t begin = at(), length = below(32), depth = count();
    const std::string inner = text_.substr(begin, length);
    const std::string all = times(open, depth) + inner + (below(4) == 0 ? "" : times(close, depth));
    text_.erase(begin, length);
    put(std::min(begin, text_.size()), all);
  }
  void repeat() {
    const std::string chunk = part(24);
    put(at(), times(chunk, count()));
  }

  std::uint64_t state_;
  std::string text_;
  const std::vector<std::string>& inputs_;
  const Dictionary& words_;
};

}  // namespace

std::string Mutator::make(std::uint64_t seed, std::uint64_t number) const {
  Changes choice(seed * 0x9e3779b97f4a7c15 + number, "", inputs_, words_);
  Changes changes(choice.below(0) + choice.below(UINT64_MAX), inputs_[choice.below(inputs_.size())], inputs_, words_);
  for (std::uint64_t left = 1 + choice.below(6); left > 0; --left) changes.change();
  return std::move(changes).take();
}

}  // namespace titan::fuzz
