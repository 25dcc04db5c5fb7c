// The matmuls of bfloat16 attention in tiles (kernels/cpu/simd/tiles.h). products_vector.h has the same functions, and
// says what each computes.
//
// A tile multiplication adds [16, pairs] times [pairs, 16] to 16 x 16 sums, with 16 pairs, or 8 if only those are left.
// Scores, and sums over keys, use the same operand layouts as the vectors. For sums over rows the left operand would be
// the transposed weights. Here the sums are computed transposed, so that the left operand is the block's transposed
// rows, which have few dims.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/attention/bfloat16_words.h"
#include "kernels/cpu/simd/tiles.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// Number of tiles with sums (tiles 0 to 3), and the tiles of operands with 16 pairs; operands with 8 use the smaller
// tiles.
constexpr int kSums = 4, kLeft = 4, kRight = 5;

// While one exists, this thread's tiles have these shapes.
class ProductsScope {
  const TileScope tiles_{true};
};

// Calls body(0), body(1), ... for the first `count` sums, each with a compile-time constant.
template <typename Body>
void for_sums(Index count, const Body& body) {
  body(std::integral_constant<int, 0>{});
  if (count > 1) body(std::integral_constant<int, 1>{});
  if (count > 2) body(std::integral_constant<int, 2>{});
  if (count > 3) body(std::integral_constant<int, 3>{});
}

// Adds the products of one left operand, `pairs` (a multiple of 8) words wide, and `count` right operands to as many
// sums. left(p) and right(p, sum) return where their pairs from p on begin.
template <typename Left, typename Right>
void add_products(Index count, Index pairs, const Left& left, Index left_stride, const Right& right,
                  Index right_stride) {
  Index p = 0;
  for (; p + 16 <= pairs; p += 16) {
    load_tile<kLeft>(left(p), left_stride);
    for_sums(count, [&](auto sum) {
      load_tile<kRight>(right(p, sum), right_stride);
      add_product<sum, kLeft, kRight>();
    });
  }
  if (p == pairs) return;
  load_tile<kHalfLeft>(left(p), left_stride);
  for_sums(count, [&](auto sum) {
    load_tile<kHalfRight>(right(p, sum), right_stride);
    add_product<sum, kHalfLeft, kHalfRight>();
  });
}

void multiply(const Word* rows, Index pairs, const Word* columns, Index count, float* products, Index stride) {
  for (Index j = 0; j < count; j += kSums * kWidth) {
    const Index tiles = std::min<Index>(kSums, (count - j) / kWidth);
    for_sums(tiles, [](auto sum) { zero_tile<sum>(); });
    add_products(
        tiles, pairs, [&](Index p) { return rows + p; }, pairs,
        [&](Index p, Index sum) { return columns + (j + sum * kWidth) * pairs + p * kWidth; }, kWidth);
    for_sums(tiles, [&](auto sum) { store_tile<sum>(products + j + sum * kWidth, stride); });
  }
}

void combine(Weights weights, const Word* values, Index dim, Index count, const float* factors, Index rows,
             Rows<BFloat16Bits> to) {
  alignas(64) float sums[kGroup][kSums * kWidth];
  for (Index e = 0; e < dim; e += kSums * kWidth) {
    const Index tiles = std::min<Index>(kSums, (dim - e) / kWidth);
    for_sums(tiles, [](auto sum) { zero_tile<sum>(); });
    add_products(
        tiles, count / 2, [&](Index p) { return weights.data + 2 * p; }, weights.stride / 2,
        [&](Index p, Index sum) { return values + p * dim + e + sum * kWidth; }, dim);
    for_sums(tiles, [&](auto sum) { store_tile<sum>(&sums[0][sum * kWidth], kSums * kWidth); });
    for (Index r = 0; r < rows && r < kGroup; ++r)
      for (Index c = 0; c < tiles; ++c)
        store_rounded(to.data + r * to.stride + e + c * kWidth,
                      _mm512_mul_ps(_mm512_load_ps(&sums[r][c * kWidth]), _mm512_set1_ps(factors[r])));
  }
}

// Transposes in place: rows[i][j] = the old rows[j][i].
void transpose(__m512i (&rows)[16]) {
  transpose_fours(rows);
  for (Index i = 0; i < 4; ++i) {  // then the 4 x 4 blocks, a quarter each
    const __m512i even_low = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xDD);
    const __m512i even_high = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xDD);
    rows[i] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    rows[4 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(even_low, even_high, 0xDD);
    rows[12 + i] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xDD);
  }
}

// to[e][i / 2] = from[i][e] and from[i + 1][e]
void pack_block(const BFloat16Bits* from, Index rows, Index dim, Word* to) {
  for (Index e = 0; e < dim; e += kWidth) {
    __m512i words[16] = {};
    for (Index i = 0; i < rows; i += 2) words[i / 2] = pair_of_rows(from + i * dim + e, dim);
    transpose(words);
    for (Index i = 0; i < 16; ++i) store_words(to + (e + i) * (kBlock / 2), words[i]);
  }
}

// Returns the number of sums, [dim, row_stride].
Index sums_numel(Index length, Index dim) { return dim * row_stride(length); }

void scatter(const Word* weights, Index stride, const Word* rows, Index pairs, Index dim, Index diagonal, Index count,
             float* sums) {
  for (Index j = 0; j < count; j += kWidth) {
    const Index unseen = j > diagonal ? (j - diagonal) / kGroup * kGroup / 2 : 0;  // pairs of rows, in full groups
    for (Index e = 0; e < dim; e += kSums * kWidth) {
      const Index tiles = std::min<Index>(kSums, (dim - e) / kWidth);
      float* const to = sums + e * stride + j;
      for_sums(tiles, [&](auto sum) { load_tile<sum>(to + sum * kWidth * stride, stride); });
      const auto add = [&](auto left, auto right) {
        load_tile<right>(weights + unseen * stride + j, stride);
        for_sums(tiles, [&](auto sum) {
          load_tile<left>(rows + (e + sum * kWidth) * (kBlock / 2) + unseen, kBlock / 2);
          add_product<sum, left, right>();
        });
      };
      if (pairs - unseen == 16) {
        add(std::integral_constant<int, kLeft>{}, std::integral_constant<int, kRight>{});
      } else {
        add(std::integral_constant<int, kHalfLeft>{}, std::integral_constant<int, kHalfRight>{});
      }
      for_sums(tiles, [&](auto sum) { store_tile<sum>(to + sum * kWidth * stride, stride); });
    }
  }
}

void take_sums(const float* sums, Index length, Index dim, float scale, Rows<BFloat16Bits> to) {
  const Index stride = row_stride(length);
  for (Index i = 0; i < length; i += kWidth)
    for (Index e = 0; e < dim; e += kWidth) {
      __m512i values[16];
      for (Index d = 0; d < 16; ++d) values[d] = load_words(sums + (e + d) * stride + i);
      transpose(values);
      for (Index r = 0; r < 16 && i + r < length; ++r)
        store_rounded(to.data + (i + r) * to.stride + e, _mm512_castsi512_ps(values[r]) * scale);
    }
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
