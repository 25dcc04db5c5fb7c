// The matmuls of bfloat16 attention in vectors of 16 words (AVX512-BF16). products_tile.h has the same functions.
#pragma once

#include "kernels/cpu/attention/bfloat16_words.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kTile = 8;  // rows of scores at a time

// While one exists, this thread may call the functions below.
struct ProductsScope {};

__m512i spread_word(const Word* from) { return _mm512_set1_epi32(static_cast<int>(*from)); }
__m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// products[r][j] = sum over dims of rows[r] * columns[j], for kTile rows and kColumns vectors of columns
template <Index kColumns>
void multiply_columns(const Word* rows, Index pairs, const Word* columns, float* products, Index stride) {
  __m512 sums[kTile][kColumns] = {};
  for (Index p = 0; p < pairs; ++p) {
    __m512i right[kColumns];
    for (Index c = 0; c < kColumns; ++c) right[c] = load_words(columns + (c * pairs + p) * kWidth);
    for (Index r = 0; r < kTile; ++r) {
      const __m512i left = spread_word(rows + r * pairs + p);
      for (Index c = 0; c < kColumns; ++c) sums[r][c] = multiply_add(sums[r][c], left, right[c]);
    }
  }
  for (Index r = 0; r < kTile; ++r)
    for (Index c = 0; c < kColumns; ++c) _mm512_storeu_ps(products + r * stride + c * kWidth, sums[r][c]);
}
// The same for `count` columns, a multiple of 16, packed by pair_dims().
void multiply(const Word* rows, Index pairs, const Word* columns, Index count, float* products, Index stride) {
  Index j = 0;
  for (; j + 3 * kWidth <= count; j += 3 * kWidth)
    multiply_columns<3>(rows, pairs, columns + j * pairs, products + j, stride);
  if (count - j == 2 * kWidth) multiply_columns<2>(rows, pairs, columns + j * pairs, products + j, stride);
  if (count - j == kWidth) multiply_columns<1>(rows, pairs, columns + j * pairs, products + j, stride);
}

// to[r] = factors[r] * the sum over j < count (even) of weights[r][j] * values[j], for kRows rows and kVectors vectors
// of the dim. Only the first `rows` rows are written.
template <Index kRows, Index kVectors>
void combine_columns(Weights weights, const Word* values, Index dim, Index count, const float* factors, Index rows,
                     Rows<BFloat16Bits> to) {
  __m512 sums[kRows][kVectors] = {};
  for (Index j = 0; j < count; j += 2) {
    __m512i value[kVectors];
    for (Index c = 0; c < kVectors; ++c) value[c] = load_words(values + j / 2 * dim + c * kWidth);
    for (Index r = 0; r < kRows; ++r) {
      Word word;
      std::memcpy(&word, weights.data + r * weights.stride + j, sizeof word);
      const __m512i weight = spread_word(&word);
      for (Index c = 0; c < kVectors; ++c) sums[r][c] = multiply_add(sums[r][c], weight, value[c]);
    }
  }
  for (Index r = 0; r < kRows && r < rows; ++r)
    for (Index c = 0; c < kVectors; ++c)
      store_rounded(to.data + r * to.stride + c * kWidth, _mm512_mul_ps(sums[r][c], _mm512_set1_ps(factors[r])));
}
// The same for a group's rows and the full dim. `values` are packed by pair_rows(), `count` is a multiple of 16.
void combine(Weights weights, const Word* values, Index dim, Index count, const float* factors, Index rows,
             Rows<BFloat16Bits> to) {
  Index e = 0;
  for (; e + 2 * kWidth <= dim; e += 2 * kWidth)
    for (Index r = 0; r < kGroup && r < rows; r += kTile)
      combine_columns<kTile, 2>({weights.data + r * weights.stride, weights.stride}, values + e, dim, count,
                                factors + r, rows - r, {to.data + r * to.stride + e, to.stride});
  if (e < dim) combine_columns<kGroup, 1>(weights, values + e, dim, count, factors, rows, {to.data + e, to.stride});
}

// Packs the rows of a block, [rows, dim], for scatter(): kBlock / 2 * dim words.
void pack_block(const BFloat16Bits* from, Index rows, Index dim, Word* to) { pair_rows(from, rows, dim, to); }

// Returns the number of sums that scatter() adds to, one per key and dim: here [padded length, dim].
Index sums_numel(Index length, Index dim) { return padded(length) * dim; }

template <Index kVectors, Index kKeys>
void scatter_columns(const Word* weights, Index stride, const Word* rows, Index pairs, Index dim, Index diagonal,
                     Index count, float* sums) {
  for (Index j = 0; j < count; j += kKeys) {
    __m512 parts[kKeys][kVectors];
    for (Index i = 0; i < kKeys; ++i)
      for (Index c = 0; c < kVectors; ++c) parts[i][c] = _mm512_loadu_ps(sums + (j + i) * dim + c * kWidth);
    for (Index p = j > diagonal ? (j - diagonal) / 2 : 0; p < pairs; ++p) {
      __m512i row[kVectors];
      for (Index c = 0; c < kVectors; ++c) row[c] = load_words(rows + p * dim + c * kWidth);
      for (Index i = 0; i < kKeys; ++i) {
        const __m512i weight = spread_word(weights + p * stride + j + i);
        for (Index c = 0; c < kVectors; ++c) parts[i][c] = multiply_add(parts[i][c], weight, row[c]);
      }
    }
    for (Index i = 0; i < kKeys; ++i)
      for (Index c = 0; c < kVectors; ++c) _mm512_storeu_ps(sums + (j + i) * dim + c * kWidth, parts[i][c]);
  }
}
// Adds to key j's sum the sum over a block's pairs of rows of weights[pair][j] * rows[pair], for j < count. Row i of
// the block sees no key after key `diagonal` + i. Its weights are 0 for keys that it does not see, and not read if its
// full group does not see them.
void scatter(const Word* weights, Index stride, const Word* rows, Index pairs, Index dim, Index diagonal, Index count,
             float* sums) {
  Index e = 0;
  for (; e + 4 * kWidth <= dim; e += 4 * kWidth)
    scatter_columns<4, 4>(weights, stride, rows + e, pairs, dim, diagonal, count, sums + e);
  for (; e + 2 * kWidth <= dim; e += 2 * kWidth)
    scatter_columns<2, 8>(weights, stride, rows + e, pairs, dim, diagonal, count, sums + e);
  if (e < dim) scatter_columns<1, 16>(weights, stride, rows + e, pairs, dim, diagonal, count, sums + e);
}

// to [length, dim] = the sums times `scale`, rounded.
void take_sums(const float* sums, Index length, Index dim, float scale, Rows<BFloat16Bits> to) {
  for (Index i = 0; i < length; ++i)
    for (Index e = 0; e < dim; e += kWidth)
      store_rounded(to.data + i * to.stride + e, load(sums + i * dim + e) * scale);
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
