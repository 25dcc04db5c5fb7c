// Splits a fill of counter-based random numbers into groups of four elements, one Philox call each. Shared by the
// kernel and by the host test of its index arithmetic.
#pragma once

#include <cstdint>

#include "kernels/portable/philox.h"

namespace titan::cuda {

// Elements first, first + 1, ..., first + numel - 1 of a stream.
struct Fill {
  std::uint64_t seed;
  std::uint64_t stream;
  std::uint64_t first;
  std::int64_t numel;
};

// Returns the number of groups. A group is one Philox block; the first and the last may extend beyond the range.
constexpr std::int64_t num_groups(const Fill& fill) {
  if (fill.numel == 0) return 0;
  const auto last = fill.first + static_cast<std::uint64_t>(fill.numel) - 1;
  return static_cast<std::int64_t>(last / 4 - fill.first / 4) + 1;
}

// Writes the elements of one group that are in the range; out[i] is element first + i.
constexpr void fill_group(const Fill& fill, std::int64_t group, float* out) {
  const auto words = kernels::philox_block(fill.seed, fill.stream, fill.first / 4 + static_cast<std::uint64_t>(group));
  const std::int64_t begin = group * 4 - static_cast<std::int64_t>(fill.first % 4);
  for (int lane = 0; lane < 4; ++lane) {
    const std::int64_t i = begin + lane;
    if (i >= 0 && i < fill.numel) out[i] = kernels::uniform_of(words[lane]);
  }
}

}  // namespace titan::cuda
