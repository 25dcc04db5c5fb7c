// One AdamW step over a part of one parameter, on one thread: parameter, moments and gradient are read once, and the
// gradient is clipped in a register. adamw_rows.cpp is compiled once for each set of instructions, into a namespace of
// its own (see attention/heads.h, also for why there is no torch here).
#pragma once

#include <cstdint>

namespace titan::kernels {

// Elements of one parameter, and what belongs to them; none overlap.
struct AdamWShard {
  float* param;
  const float* grad;
  float* exp_avg;
  float* exp_avg_sq;
};

struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay;
  float step;         // this one's number, from 1 on
  float grad_factor;  // the gradient is multiplied by it and rounded, before all else
};

struct AdamWKernels {
  const char* name;
  // The arithmetic of ATen's _fused_adamw_, operation by operation. A parameter may be cut in parts at multiples of
  // kAdamWUnit elements, and the result is that of the whole.
  void (*update)(std::int64_t count, const AdamWShard&, const AdamWStep&);
};

constexpr std::int64_t kAdamWUnit = 8;  // the elements of ATen's vectors

// Only those that this machine has may be called.
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
