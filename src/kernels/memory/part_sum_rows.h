// Sums of ranks' parts of a reduction on one thread, in one pass. part_sum_rows.cpp is compiled once for each set of
// instructions, into a namespace of its own; part_sum.cpp picks when the program runs. No torch here, for the reason that
// attention/heads.h gives.
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// `count` elements of each of num_parts, at least one.
template <typename T>
struct Parts {
  const T* const* parts;
  std::int64_t num_parts, count;
};

struct PartSums {
  const char* name;
  // sum[i] = (parts[0][i] + parts[1][i] + ...) / divisor, one after the other in float32. `sum` may be one of the parts.
  // Past the caches where that is asked for; what was written is visible to other threads and processes as after ordinary
  // stores, once the call returns.
  void (*of_float)(const Parts<float>& parts, float divisor, bool past_caches, float* sum);
  void (*of_bfloat16)(const Parts<BFloat16Bits>& parts, float divisor, bool past_caches, float* sum);
};

// For any processor (with ordinary stores), for AVX2 with FMA, and for AVX-512. Only those that this machine has may be
// called.
namespace plain {
extern const PartSums kPartSums;
}
namespace avx2 {
extern const PartSums kPartSums;
}
namespace avx512 {
extern const PartSums kPartSums;
}

}  // namespace titan::kernels
