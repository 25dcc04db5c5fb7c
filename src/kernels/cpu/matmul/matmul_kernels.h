// Matmuls on one thread, with float32 sums that are rounded once. vector_matmul.cpp and tile_matmul.cpp are compiled
// for several instruction sets, each into a namespace of its own. No torch here (see attention/heads.h).
#pragma once

#include <cstdint>

#include "kernels/portable/half_bits.h"

namespace titan::kernels {

// A matrix that is contiguous along one of its dims: that stride is 1. Strides are in elements.
template <typename T>
struct Matrix {
  const T* data;
  std::int64_t row_stride, column_stride;
};

struct MatmulShape {
  std::int64_t rows, columns, depth;  // at least 1
};

// Computes out [rows, columns] = left [rows, depth] times right [depth, columns]; out's rows are out_stride elements
// apart. An element's bits depend only on its row, its column and the depth. `workspace` is aligned to 64 bytes.
template <typename T>
using Multiply = void (*)(const MatmulShape& shape, const Matrix<T>& left, const Matrix<T>& right, T* out,
                          std::int64_t out_stride, void* workspace);

struct MatmulKernels {
  const char* name;
  // Returns the bytes of the workspace: up to 9 MiB, and for a depth above 4,096 (tiles: 8,192) also the float32 sums
  // of up to 480 (512) rows.
  std::int64_t (*workspace)(const MatmulShape& shape);
  Multiply<BFloat16Bits> multiply_bfloat16;
  Multiply<Float16Bits> multiply_float16;  // null if there is none
};

// Builds for any processor, for AVX2 with FMA and for AVX-512: operands are widened to float32 while they are packed,
// and each sum adds its products in the order of the depth. AVX2 and AVX-512, both with FMA, give the same bits.
namespace plain {
extern const MatmulKernels kMatmul;
}
namespace avx2 {
extern const MatmulKernels kMatmul;
}
namespace avx512 {
extern const MatmulKernels kMatmul;
}
// The build for tiles: bfloat16 only; subnormal numbers are taken for 0.
namespace amx {
extern const MatmulKernels kMatmul;
}

}  // namespace titan::kernels
