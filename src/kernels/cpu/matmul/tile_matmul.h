// Products of matrices in bfloat16 on one thread, in tiles (AMX). tile_matmul.cpp is compiled for processors that have
// them. No torch here, for the reason that attention/heads.h gives.
#pragma once

#include <cstdint>

#include "kernels/cpu/bfloat16_bits.h"

namespace titan::kernels {

// Elements are neighbours along one of the dims: its stride is 1.
struct Matrix {
  const BFloat16Bits* data;
  std::int64_t row_stride, column_stride;
};

struct MatmulShape {
  std::int64_t rows, columns, depth;  // at least 1
};

namespace amx {

// Bytes of working memory of one call, which begins at a multiple of 64: up to 9 MiB, and where the depth is above 8,192
// the float32 sums of up to 512 rows.
std::int64_t matmul_workspace(const MatmulShape& shape);

// out [rows, columns], of which rows are out_stride elements apart = left [rows, depth] times right [depth, columns].
// Sums are float32's, rounded once; numbers below bfloat16's normal ones are taken for 0. An element's bits depend on
// its row, its column and the depth alone.
void matmul(const MatmulShape& shape, const Matrix& left, const Matrix& right, BFloat16Bits* out,
            std::int64_t out_stride, void* workspace);

}  // namespace amx

}  // namespace titan::kernels
