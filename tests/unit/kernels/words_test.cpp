// Tests every instruction set of this machine against the formula, at sizes around its vectors and parts.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/rows/words_kernel.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

std::vector<std::uint64_t> drawn_words(std::size_t count) {
  std::mt19937_64 draw(count);
  std::vector<std::uint64_t> words(count);
  for (auto& word : words) word = draw();
  return words;
}

TEST(WordSums, AreTheSumsOfTheFormula) {
  const auto factors = drawn_words(300);
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kWordSums))
    for (const std::size_t count : {1, 15, 16, 17, 31, 32, 300, 301, 600, 1000}) {
      const auto words = drawn_words(count);
      std::vector<std::uint64_t> expected((count + 299) / 300, 0), sums(expected.size(), 7);
      for (std::size_t i = 0; i < count; ++i) {
        const auto upper = static_cast<std::uint64_t>(static_cast<std::int64_t>(words[i]) >> 32);
        expected[i / 300] += (words[i] ^ upper) * factors[i % 300];
      }
      std::vector<char> memory(count * 8 + 3);
      std::memcpy(memory.data() + 3, words.data(), count * 8);  // not at a word
      sum_words(*kernels, static_cast<std::int64_t>(count), memory.data() + 3, factors, sums);
      EXPECT_EQ(sums, expected) << kernels->name << ", " << count;
    }
}

}  // namespace
}  // namespace titan::kernels
