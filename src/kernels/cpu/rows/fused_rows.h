// RMSNorm (also of a sum), rotary embedding and SwiGLU on one thread, computed in float32, in one pass over memory
// forward and one backward. fused_rows.cpp is compiled once per instruction set, into a namespace of its own;
// best_fused_kernels() picks one at run time. No torch here (see attention/heads.h).
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// The shape of matrices with `rows` rows of `dim` elements, without gaps.
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
  // The same for sum = x + delta, which is rounded to T first.
  void (*add_rms_norm)(RowsShape, const T* x, const T* delta, const T* weight, float eps, T* sum, T* out, float* rrms);
  // Adds `more`, if not null, to x_grad, which is rounded to T before and after. weight_grad [dim] is this call's sum
  // over rows.
  void (*rms_norm_backward)(RowsShape, const T* out_grad, const T* more, const T* x, const T* weight, const float* rrms,
                            T* x_grad, float* weight_grad);
  // Sums the rows of `values`, which it overwrites, into sums [dim]. Pairs of rows are added, then pairs of those.
  void (*sum_rows)(RowsShape, float* values, T* sums);

  // Multiplies pairs of adjacent elements, as complex numbers, by complex `factors` [head_dim / 2] or their conjugates.
  // Heads are contiguous in `out`.
  void (*rotate)(TokenHeads, const T* x, const float* factors, bool conjugate, T* out);
  // The same for pairs of an element of a head's first half and one of its second. Factors, products and sums are
  // rounded to T.
  void (*rotate_halves)(TokenHeads, const T* x, const float* factors, bool conjugate, T* out);

  // out = silu(gate) * up. silu(gate) is rounded to T first, and so is its gradient in backward.
  void (*swiglu)(std::int64_t count, const T* gate, const T* up, T* out);
  void (*swiglu_backward)(std::int64_t count, const T* out_grad, const T* gate, const T* up, T* gate_grad, T* up_grad);
};

struct FusedKernels {
  const char* name;
  FusedKernelsFor<float> of_float;
  FusedKernelsFor<BFloat16Bits> of_bfloat16;
};

// Builds for any processor, for AVX2 with FMA, and for AVX-512. Call only those whose instructions this machine has.
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
