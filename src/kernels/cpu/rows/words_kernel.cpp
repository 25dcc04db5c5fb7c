#include "kernels/cpu/rows/words_kernel.h"

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kWordsPerThread = 32768;  // minimum: fewer take less time than waking a thread

}  // namespace

const WordSums& best_word_sums() { return TITAN_BEST_KERNELS(kWordSums); }

void sum_words(const WordSums& kernels, std::int64_t count, const void* words, std::span<const std::uint64_t> factors,
               std::span<std::uint64_t> sums) {
  const auto of_part = std::ssize(factors);
  const auto* const begin = static_cast<const char*>(words);
  const auto body = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part)
      sums[static_cast<std::size_t>(part)] =
          kernels.sum(std::min(of_part, count - part * of_part), begin + part * of_part * 8, factors.data());
  };
  const auto parts = std::ssize(sums);
  if (parts == 1) return body(0, 1);
  parallel_for(0, parts, (kWordsPerThread + of_part - 1) / of_part, body);
}

}  // namespace titan::kernels
