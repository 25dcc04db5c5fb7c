// Copies on one thread whose target goes to memory past the caches. stream_copy_rows.cpp is compiled once for each set
// of instructions, into a namespace of its own; stream_copy.cpp picks when the program runs. No torch here, for the
// reason that attention/heads.h gives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Source and target do not overlap; neither need be aligned beyond its elements. What was written is visible to other
// threads and processes as after ordinary stores, once the call returns.
struct StreamCopies {
  const char* name;
  void (*copy)(std::int64_t bytes, const std::byte* source, std::byte* target);
  // To the nearest, ties to even; not-a-number stays one.
  void (*narrow)(std::int64_t count, const float* source, BFloat16Bits* target);
  void (*widen)(std::int64_t count, const BFloat16Bits* source, float* target);
};

// For any processor (with ordinary stores), for AVX2 with FMA, and for AVX-512. Only those that this machine has may be
// called.
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
