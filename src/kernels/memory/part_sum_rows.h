// Sums ranks' parts of a reduction on one thread, in one pass. part_sum_rows.cpp is compiled once per instruction set,
// into a namespace of its own; part_sum.cpp picks one at run time. No torch here (see attention/heads.h).
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// The num_parts arrays to sum (at least one), of `count` elements each.
template <typename T>
struct Parts {
  const T* const* parts;
  std::int64_t num_parts, count;
};

struct PartSums {
  const char* name;
  // sum[i] = (parts[0][i] + parts[1][i] + ...) / divisor, added in this order in float32. `sum` may be one of the
  // parts. `past_caches` selects streaming stores. Other threads and processes see the result as after ordinary stores,
  // once the call returns.
  void (*of_float)(const Parts<float>& parts, float divisor, bool past_caches, float* sum);
  void (*of_bfloat16)(const Parts<BFloat16Bits>& parts, float divisor, bool past_caches, float* sum);
};

// Builds for any processor (with ordinary stores), for AVX2 with FMA, and for AVX-512. Call only those whose
// instructions this machine has.
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
