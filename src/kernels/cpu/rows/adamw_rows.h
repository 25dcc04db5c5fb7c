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

struct AdamWKernels {
  const char* name;
  // Repeats the arithmetic of ATen's _fused_adamw_, operation by operation. Splitting a parameter at multiples of
  // kAdamWUnit elements does not change the result.
  void (*update)(std::int64_t count, const AdamWShard&, const AdamWStep&);
};

constexpr std::int64_t kAdamWUnit = 8;  // elements per vector of ATen's

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
