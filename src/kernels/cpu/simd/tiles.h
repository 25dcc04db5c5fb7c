// Tiles of 16 rows of 16 words (AMX), for files that are compiled for processors that have them. A tile multiplication
// adds [16, words] of bfloat16 pairs times [words, 16] pairs to 16 x 16 float32 sums: as much as 256 vector
// instructions, in the time of 16. Written in assembly since GCC's intrinsics do not tell the compiler that they read
// memory. Strides are in words or floats.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kTile = 16;

// The two of the eight tiles that TileScope can make smaller: [16, 8] as a left operand, [8, 16] as a right one.
constexpr int kHalfLeft = 6, kHalfRight = 7;

// Configures this thread's tiles while it exists: all of full size, except those two if `with_halves`. oneDNN does the
// same around its own kernels.
class TileScope {
 public:
  explicit TileScope(bool with_halves) {
    struct alignas(64) {  // as the instruction reads it (Intel's manual, LDTILECFG)
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    if (with_halves) {
      shapes.row_bytes[kHalfLeft] = 32;
      shapes.rows[kHalfRight] = 8;
    }
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~TileScope() { asm volatile("tilerelease" ::); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int kTo>
void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTo));
}
template <int kTo>
void load_tile(const void* from, Index stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride * 4), "i"(kTo) : "memory");
}
// The same for data that should not evict anything from the L1 cache.
template <int kTo>
void load_passing_tile(const void* from, Index stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride * 4), "i"(kTo) : "memory");
}
template <int kFrom>
void store_tile(float* to, Index stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride * 4), "i"(kFrom) : "memory");
}
template <int kSum, int kA, int kB>
void add_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
