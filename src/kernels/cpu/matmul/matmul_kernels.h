// Products of matrices on one thread, with sums in float32 that are rounded once. vector_matmul.cpp and tile_matmul.cpp
// are compiled for several sets of instructions, each into a namespace of its own. No torch here, for the reason that
// attention/heads.h gives.
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// Strides are in elements. Elements are neighbours along one of the dims: its stride is 1.
template <typename T>
struct Matrix {
  const T* data;
  std::int64_t row_stride, column_stride;
};

struct MatmulShape {
  std::int64_t rows, columns, depth;  // at least 1
};

// out [rows, columns], whose rows are out_stride elements apart = left [rows, depth] times right [depth, columns]. An
// element's bits depend on its row, its column and the depth alone. `workspace` begins at a multiple of 64.
template <typename T>
using Multiply = void (*)(const MatmulShape& shape, const Matrix<T>& left, const Matrix<T>& right, T* out,
                          std::int64_t out_stride, void* workspace);

struct MatmulKernels {
  const char* name;
  // Bytes: up to 9 MiB, and for a depth above 4,096 (tiles: 8,192) the float32 sums of up to 480 (512) rows.
  std::int64_t (*workspace)(const MatmulShape& shape);
  Multiply<BFloat16Bits> multiply_bfloat16;
  Multiply<Float16Bits> multiply_float16;  // null if there is none
};

// For any processor, for AVX2 with FMA and for AVX-512: operands are widened to float32 while they are packed, and each
// sum adds its products in the order of the depth. With FMA two sets of instructions give the same bits.
namespace plain {
extern const MatmulKernels kMatmul;
}
namespace avx2 {
extern const MatmulKernels kMatmul;
}
namespace avx512 {
extern const MatmulKernels kMatmul;
}
// In tiles: bfloat16 alone, in which numbers below its normal ones are taken for 0.
namespace amx {
extern const MatmulKernels kMatmul;
}

}  // namespace titan::kernels
