// RMSNorm (also of a sum), rotary embedding and SwiGLU on one thread, in float32 inside: one pass over memory forward,
// one backward. fused_rows.cpp is compiled once for each set of instructions, into a namespace of its own;
// best_fused_kernels() picks when the program runs. No torch here, for the reason that attention/heads.h gives.
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Of matrices with `rows` rows of `dim` elements, without gaps.
struct RowsShape {
  std::int64_t rows;
  std::int64_t dim;
};

// The heads of one token, `head_stride` elements apart.
struct TokenHeads {
  std::int64_t heads;
  std::int64_t head_dim;  // even
  std::int64_t head_stride;
};

template <typename T>
struct FusedKernelsFor {
  // out = x * rrms * weight, with rrms [rows] = 1 / sqrt(mean of the row's squares + eps).
  void (*rms_norm)(RowsShape, const T* x, const T* weight, float eps, T* out, float* rrms);
  // The same of sum = x + delta, which is rounded to T first.
  void (*add_rms_norm)(RowsShape, const T* x, const T* delta, const T* weight, float eps, T* sum, T* out, float* rrms);
  // `more`, or null: rows that are added to x_grad, which is rounded to T before and after. weight_grad [dim] is this
  // call's sum over rows.
  void (*rms_norm_backward)(RowsShape, const T* out_grad, const T* more, const T* x, const T* weight, const float* rrms,
                            T* x_grad, float* weight_grad);
  // sums [dim] over the rows of `values`, which it overwrites. Pairs of rows are added, then pairs of those.
  void (*sum_rows)(RowsShape, float* values, T* sums);

  // Pairs of neighbours as complex numbers, times `factors` [head_dim / 2], complex as well, or times their conjugates.
  // Heads lie side by side in `out`.
  void (*rotate)(TokenHeads, const T* x, const float* factors, bool conjugate, T* out);

  // out = silu(gate) * up, of which silu(gate) is rounded to T first, as is the gradient of each product in backward.
  void (*swiglu)(std::int64_t count, const T* gate, const T* up, T* out);
  void (*swiglu_backward)(std::int64_t count, const T* out_grad, const T* gate, const T* up, T* gate_grad, T* up_grad);
};

struct FusedKernels {
  const char* name;
  FusedKernelsFor<float> of_float;
  FusedKernelsFor<BFloat16Bits> of_bfloat16;
};

// For any processor, for AVX2 with FMA, and for AVX-512. Only those that this machine has may be called.
namespace plain {
extern const FusedKernels kFused;
}
namespace avx2 {
extern const FusedKernels kFused;
}
namespace avx512 {
extern const FusedKernels kFused;
}

}  // namespace titan::kernels
