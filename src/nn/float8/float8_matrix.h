// Matrices in float8 with a scale for all of their values, or for each row or column, and their products. The
// arithmetic is that of torchao's dynamic scaling (torchao/float8/float8_utils.py, float8_ops.py).
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

// Says what shares a scale in a matrix [m, n].
enum class Float8Scaling {
  kTensor,  // all values: scale []
  kRows,    // each row: scale [m, 1]
  kColumns  // each column: scale [1, n]
};

struct Float8Matrix {
  at::Tensor values;  // [m, n], of float8; `x` is about values / scale
  at::Tensor scale;   // float32
  Float8Matrix t() const { return {values.t(), scale.t()}; }
};

// Returns the scale, float32, for values whose largest magnitude is `maxima`, of any shape.
at::Tensor float8_scale(const at::Tensor& maxima, at::ScalarType dtype);

// Returns `x`, of any shape, times `scale` in `dtype`; what would be too large is cut to the largest value.
at::Tensor scaled_to_float8(const at::Tensor& x, const at::Tensor& scale, at::ScalarType dtype);

// Returns `x` [m, n] in `dtype` (Float8_e4m3fn or Float8_e5m2). The largest magnitude that shares a scale becomes the
// largest of the type; what would be larger by rounding is cut to it. A scale that is rounded down to a power of two
// changes no mantissa.
Float8Matrix to_float8(const at::Tensor& x, at::ScalarType dtype, Float8Scaling scaling, bool power_of_two);

// Returns a [m, k] b [k, n] of `dtype`. Emulated: both are multiplied in float32 after they were divided by their
// scales. Otherwise at::_scaled_mm multiplies them, which needs a GPU of compute capability 8.9, multiples of 16 for k
// and n (k is padded with zeros), and one scale for each matrix, or one for each row of `a` and column of `b`. `fast`
// lets the GPU add with fewer bits. Of meta tensors, and not emulated, the result has no kernel behind it.
at::Tensor float8_product(const Float8Matrix& a, const Float8Matrix& b, at::ScalarType dtype, bool fast, bool emulate);

}  // namespace titan::nn
