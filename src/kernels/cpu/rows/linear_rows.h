// Linear layers of few rows on one thread: y = x W^T. linear_rows.cpp is compiled for several instruction sets, each
// into a namespace of its own. No torch here.
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

struct LinearShape {
  std::int64_t rows;        // of x
  std::int64_t depth;       // elements of a row of x, and of a row of the weight
  std::int64_t out_stride;  // elements between the rows of the output
};

// Writes the outputs [first, past the last) of every row: out[row][j] is the sum of x[row][i] weight[j][i], in float32,
// rounded once. x [rows, depth] and weight [outputs, depth] have neighboring rows. An output's bits depend only on its
// row of x and of the weight, not on the number of rows.
template <typename T>
using LinearRows = void (*)(const LinearShape& shape, const float* x, const T* weight, std::int64_t first,
                            std::int64_t past_last, T* out);

struct LinearKernels {
  const char* name;
  LinearRows<float> float32;
  LinearRows<BFloat16Bits> bfloat16;
};

// Builds for any processor, for AVX2 with FMA and for AVX-512. They add in different orders.
namespace plain {
extern const LinearKernels kLinear;
}
namespace avx2 {
extern const LinearKernels kLinear;
}
namespace avx512 {
extern const LinearKernels kLinear;
}

}  // namespace titan::kernels
