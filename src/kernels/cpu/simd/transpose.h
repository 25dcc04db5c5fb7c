// Transposing words in registers (AVX-512), for files that are compiled for processors that have it.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// Transposes each 4 x 4 block of words: quarter l of rows[4 k + i] gets word 4 l + i of the rows 4 k to 4 k + 3.
template <Index kRows>
void transpose_fours(__m512i (&rows)[kRows]) {
  static_assert(kRows % 4 == 0);
  for (Index i = 0; i < kRows; i += 4) {
    const __m512i low[] = {_mm512_unpacklo_epi32(rows[i], rows[i + 1]),
                           _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3])};
    const __m512i high[] = {_mm512_unpackhi_epi32(rows[i], rows[i + 1]),
                            _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3])};
    rows[i] = _mm512_unpacklo_epi64(low[0], low[1]);
    rows[i + 1] = _mm512_unpackhi_epi64(low[0], low[1]);
    rows[i + 2] = _mm512_unpacklo_epi64(high[0], high[1]);
    rows[i + 3] = _mm512_unpackhi_epi64(high[0], high[1]);
  }
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
