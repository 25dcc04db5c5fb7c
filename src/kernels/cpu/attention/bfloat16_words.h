// The operands of bfloat16 attention's matmuls and their layouts. For bfloat16_heads.cpp only.
//
// An operand is 16 words, each a pair of adjacent elements along the dim that is summed over. Queries and output
// gradients have this layout in memory, and so do rows of weights once they are rounded to bfloat16. The other operands
// are packed: pairs of dims of keys and values for scores (per group of heads), pairs of rows for sums over rows.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/attention/heads.h"
#include "kernels/cpu/attention/seen_keys.h"
#include "kernels/cpu/simd/transpose.h"
#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kGroup = 16;  // rows with the same columns of scores: all that any of them sees, in full vectors
constexpr Index kBlock = 32;  // rows whose parts of k's and v's gradients are summed in registers

Index padded(Index length) { return round_up(length, kGroup); }
Index row_stride(Index length) { return padded(length) + kWidth; }  // rows map to different cache sets

// A group's rows of weights (after the softmax) or of score gradients.
struct Weights {
  const BFloat16Bits* data;
  Index stride;  // even
};

__m512i load_words(const void* from) { return _mm512_loadu_si512(from); }
void store_words(void* to, __m512i words) { _mm512_storeu_si512(to, words); }
// Returns `low` rounded, followed by `high` rounded.
__m512i round_both(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
__m256i round_to_halves(__m512 values) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)); }
void store_rounded(BFloat16Bits* to, __m512 values) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), round_to_halves(values));
}

// Returns the pairs (halves[i], halves[16 + i]).
__m512i interleave(__m512i halves) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(halves));
  const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(halves, 1));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Loads 16 elements from each address.
__m512i load_both(const BFloat16Bits* low, const BFloat16Bits* high) {
  const __m256i low_half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
  const __m256i high_half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low_half), high_half, 1);
}

// Returns 16 pairs, each of an element of `row` and the one below it in the next row, `dim` elements later.
__m512i pair_of_rows(const BFloat16Bits* row, Index dim) { return interleave(load_both(row, row + dim)); }

// to[i / 2][e] = from[i][e] and from[i + 1][e]
void pair_rows(const BFloat16Bits* from, Index rows, Index dim, Word* to) {
  for (Index i = 0; i < rows; i += 2)
    for (Index e = 0; e < dim; e += kWidth) store_words(to + i / 2 * dim + e, pair_of_rows(from + i * dim + e, dim));
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
