// Copies on one thread with streaming stores, past the caches. stream_copy_rows.cpp is compiled once per instruction
// set, into a namespace of its own; stream_copy.cpp picks one at run time. No torch here (see attention/heads.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Source and target do not overlap, and need only their elements' alignment. Other threads and processes see the result
// as after ordinary stores, once the call returns.
struct StreamCopies {
  const char* name;
  void (*copy)(std::int64_t bytes, const std::byte* source, std::byte* target);
  // Rounds to nearest, ties to even; NaN stays NaN.
  void (*narrow)(std::int64_t count, const float* source, BFloat16Bits* target);
  void (*widen)(std::int64_t count, const BFloat16Bits* source, float* target);
};

// Builds for any processor (with ordinary stores), for AVX2 with FMA, and for AVX-512. Call only those whose
// instructions this machine has.
namespace plain {
extern const StreamCopies kStreamCopies;
}
namespace avx2 {
extern const StreamCopies kStreamCopies;
}
namespace avx512 {
extern const StreamCopies kStreamCopies;
}

}  // namespace titan::kernels
