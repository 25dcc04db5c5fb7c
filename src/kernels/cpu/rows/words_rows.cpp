// Compiled with TITAN_ISA (the namespace), see CMakeLists.txt.
#include "kernels/cpu/rows/words_rows.h"

#include <cstring>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr std::int64_t kLanes = 16;  // several vectors, so that no addition waits for the one before it

std::uint64_t product(const char* words, const std::uint64_t* factors, std::int64_t i) {
  std::uint64_t word = 0;
  std::memcpy(&word, words + i * 8, sizeof(word));
  const auto upper = static_cast<std::uint64_t>(static_cast<std::int64_t>(word) >> 32);
  return (word ^ upper) * factors[i];
}

std::uint64_t sum(std::int64_t count, const void* memory, const std::uint64_t* factors) {
  const auto* words = static_cast<const char*>(memory);
  std::uint64_t lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += product(words, factors, i + lane);
  std::uint64_t total = 0;
  for (; i < count; ++i) total += product(words, factors, i);
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

}  // namespace

extern const WordSums kWordSums = {TITAN_STRING(TITAN_ISA), sum};

}  // namespace titan::kernels::TITAN_ISA
