// One AdamW step over a part of one parameter, on one thread: parameter, moments and gradient are read once, and the
// gradient is clipped in a register. adamw_rows.cpp is compiled once for each set of instructions, into a namespace of
// its own (see attention/heads.h, also for why there is no torch here).
#pragma once

#include <cstdint>

namespace titan::kernels {

// Elements of one parameter with their gradient and moments; the arrays do not overlap.
struct AdamWShard {
  float* param;
  const float* grad;
  float* exp_avg;
  float* exp_avg_sq;
};

struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay;
  float step;         // number of this step, from 1
  float grad_factor;  // multiplies the gradient, rounded, before everything else
};

// Sums of bits of the parameter and of its two moments. Any single bit that changes in one of them changes its sum for
// certain: a lane of a vector is rotated by one bit and added to, which loses nothing, and the lanes are added up times
// odd numbers.
struct AdamWSums {
  std::uint64_t param = 0, exp_avg = 0, exp_avg_sq = 0;
};

struct AdamWKernels {
  const char* name;
  // Repeats the arithmetic of ATen's _fused_adamw_, operation by operation. Splitting a parameter at multiples of
  // kAdamWUnit elements does not change the result.
  void (*update)(std::int64_t count, const AdamWShard&, const AdamWStep&);
  // Does the same, and sets `read` to the sums of what was there before and `wrote` to those of what it has left.
  void (*update_and_sum)(std::int64_t count, const AdamWShard&, const AdamWStep&, AdamWSums& read, AdamWSums& wrote);
  // Returns the sum that update_and_sum() would set for one array. Equal for the same `name` only.
  std::uint64_t (*sum)(std::int64_t count, const float* values);
};

constexpr std::int64_t kAdamWUnit = 8;                          // elements per vector of ATen's
constexpr std::uint64_t kAdamWSumFactor = 0x9E3779B97F4A7C15U;  // odd; multiplies the sum before another is added

// Builds per instruction set. Call only those whose instructions this machine has.
namespace plain {
extern const AdamWKernels kAdamW;
}
namespace avx2 {
extern const AdamWKernels kAdamW;
}
namespace avx512 {
extern const AdamWKernels kAdamW;
}

}  // namespace titan::kernels
