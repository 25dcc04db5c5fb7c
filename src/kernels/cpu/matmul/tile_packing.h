// Packs operands of tile matmuls from matrices in memory. For tile_matmul.cpp only.
//
// A left tile is 16 rows of 32 elements of the depth, a right tile 16 rows of 16 words: row j has elements 2 j and 2 j
// + 1 of the depth, of 16 columns. Two such tiles, of 32 rows or columns, are stored one after the other. Operands that
// are contiguous along the other dim are transposed in registers. Data of four rows is loaded into the quarters of a
// vector, so that transposing within the quarters is enough: half the shuffles of a full transposition.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/matmul/multiplication.h"
#include "kernels/cpu/simd/tiles.h"
#include "kernels/cpu/simd/transpose.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kPanel = 2 * kTile;         // rows or columns; and the depth of a tile
constexpr Index kPair = 2 * kTile * kTile;  // words of two tiles

Index panels_of(Index count) { return (count + kPanel - 1) / kPanel; }

// Source strides are in elements; only packed data is aligned.
void store_row(Word* to, __m512i row) { _mm512_store_si512(to, row); }

// Loads the 16 bytes at from + l * stride into quarter l.
__m512i load_quarters(const BFloat16Bits* from, Index stride) {
  const auto quarter = [&](Index l) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + l * stride)); };
  __m512i all = _mm512_castsi128_si512(quarter(0));
  all = _mm512_mask_broadcast_i32x4(all, 0x00F0, quarter(1));
  all = _mm512_mask_broadcast_i32x4(all, 0x0F00, quarter(2));
  return _mm512_mask_broadcast_i32x4(all, 0xF000, quarter(3));
}

// Copies a left tile from rows of 32 contiguous elements.
void copy_rows(const BFloat16Bits* from, Index stride, Word* to) {
  for (Index r = 0; r < kTile; ++r) store_row(to + r * kTile, _mm512_loadu_si512(from + r * stride));
}

// Transposes a left tile from 32 columns of 16 contiguous elements.
void transpose_columns(const BFloat16Bits* from, Index stride, Word* to) {
  for (Index c = 0; c < 2; ++c, to += 8 * kTile) {
    __m512i rows[8], pairs[8], fours[8];  // quarters: 1, 2 and 4 elements of the depth for 8, 4 and 2 rows of the tile
    for (Index i = 0; i < 8; ++i) rows[i] = load_quarters(from + i * stride + 8 * c, 8 * stride);
    for (Index i = 0; i < 4; ++i) {
      pairs[i] = _mm512_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
      pairs[4 + i] = _mm512_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
    }
    for (Index i = 0; i < 8; i += 2) {
      fours[i] = _mm512_unpacklo_epi32(pairs[i], pairs[i + 1]);
      fours[i + 1] = _mm512_unpackhi_epi32(pairs[i], pairs[i + 1]);
    }
    for (Index half = 0; half < 2; ++half)
      for (Index i = 0; i < 2; ++i) {
        const __m512i low = fours[4 * half + i], high = fours[4 * half + 2 + i];
        store_row(to + (4 * half + 2 * i) * kTile, _mm512_unpacklo_epi64(low, high));
        store_row(to + (4 * half + 2 * i + 1) * kTile, _mm512_unpackhi_epi64(low, high));
      }
  }
}

// Transposes, by words, a right tile from 16 columns that are contiguous along the depth.
void transpose_words(const BFloat16Bits* from, Index stride, Word* to) {
  for (Index c = 0; c < 4; ++c, to += 4 * kTile) {
    __m512i columns[4];
    for (Index i = 0; i < 4; ++i) columns[i] = load_quarters(from + i * stride + 8 * c, 4 * stride);
    transpose_fours(columns);
    for (Index i = 0; i < 4; ++i) store_row(to + i * kTile, columns[i]);
  }
}

// Packs two right tiles of each panel from contiguous rows, as pairs of two rows. Panels are panel_words apart. Goes
// row by row, which gives the highest memory bandwidth.
void pair_rows(const BFloat16Bits* from, Index stride, Index panels, Word* to, Index panel_words) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  for (Index j = 0; j < kTile; ++j)
    for (Index p = 0; p < panels; ++p) {
      const BFloat16Bits* const row = from + 2 * j * stride + p * kPanel;
      const __m512i even = _mm512_loadu_si512(row), odd = _mm512_loadu_si512(row + stride);
      const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
      Word* const target = to + p * panel_words + j * kTile;
      store_row(target, _mm512_permutex2var_epi64(low, first, high));
      store_row(target + kTile * kTile, _mm512_permutex2var_epi64(low, second, high));
    }
}

// A block of 32 x 32 elements at the end of a matrix, padded with zeros.
struct Corner {
  alignas(64) BFloat16Bits elements[kPanel][kPanel] = {};

  Corner(const Matrix<BFloat16Bits>& from, Index row, Index rows, Index column, Index columns) {
    for (Index r = 0; r < std::min(rows, kPanel); ++r)
      for (Index c = 0; c < std::min(columns, kPanel); ++c)
        elements[r][c] = from.data[(row + r) * from.row_stride + (column + c) * from.column_stride];
  }
};

// The packing functions fill panels with zeros past the end of the matrix.
void pack_left_pair(const Matrix<BFloat16Bits>& from, Index row, Index depth, Word* to) {
  const BFloat16Bits* const corner = from.data + row * from.row_stride + depth * from.column_stride;
  for (Index half = 0; half < 2; ++half, to += kTile * kTile) {
    if (from.column_stride == 1) {
      copy_rows(corner + half * kTile * from.row_stride, from.row_stride, to);
    } else {
      transpose_columns(corner + half * kTile, from.column_stride, to);
    }
  }
}

// Packs a part of the left operand: [panels][tiles][two tiles].
void pack_left(const Matrix<BFloat16Bits>& from, const OperandPart& part, Word* to) {
  const Index panels = panels_of(part.count), tiles = panels_of(part.depth_count);
  // With contiguous columns, several panels go through the depth together, since they share those columns.
  const Index together = from.column_stride == 1 ? 1 : 8;
  for (Index first = 0; first < panels; first += together)
    for (Index t = 0; t < tiles; ++t)
      for (Index p = first; p < std::min(first + together, panels); ++p) {
        Word* const pair = to + (p * tiles + t) * kPair;
        const Index rows = part.count - p * kPanel, depth = part.depth_count - t * kPanel;
        const Index row = part.begin + p * kPanel, begin = part.depth + t * kPanel;
        if (rows >= kPanel && depth >= kPanel) {
          pack_left_pair(from, row, begin, pair);
        } else {
          const Corner corner(from, row, rows, begin, depth);
          pack_left_pair({corner.elements[0], kPanel, 1}, 0, 0, pair);
        }
      }
}

// Packs one panel from contiguous columns: [tiles][two tiles].
void pack_right_columns(const Matrix<BFloat16Bits>& from, Index column, Index depth, Index tiles, Word* to) {
  for (Index t = 0; t < tiles; ++t)
    for (Index half = 0; half < 2; ++half, to += kTile * kTile)
      transpose_words(from.data + depth + t * kPanel + (column + half * kTile) * from.column_stride, from.column_stride,
                      to);
}

// Packs columns in the layout that pack_left() has for rows.
void pack_right(const Matrix<BFloat16Bits>& from, const OperandPart& part, Word* to) {
  const Index panels = panels_of(part.count), tiles = panels_of(part.depth_count), panel_words = tiles * kPair;
  const Index whole_panels = part.count / kPanel, whole_tiles = part.depth_count / kPanel;
  if (from.column_stride == 1) {
    for (Index t = 0; t < whole_tiles; ++t)
      pair_rows(from.data + (part.depth + t * kPanel) * from.row_stride + part.begin, from.row_stride, whole_panels,
                to + t * kPair, panel_words);
  } else {
    for (Index p = 0; p < whole_panels; ++p)
      pack_right_columns(from, part.begin + p * kPanel, part.depth, whole_tiles, to + p * panel_words);
  }
  for (Index p = 0; p < panels; ++p)
    for (Index t = p < whole_panels ? whole_tiles : 0; t < tiles; ++t) {
      const Corner corner(from, part.depth + t * kPanel, part.depth_count - t * kPanel, part.begin + p * kPanel,
                          part.count - p * kPanel);
      pair_rows(corner.elements[0], kPanel, 1, to + p * panel_words + t * kPair, panel_words);
    }
}

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
