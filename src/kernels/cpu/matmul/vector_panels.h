// float32 panels, into which operands of any type are widened, and their multiplication in vectors. For
// vector_matmul.cpp only. A panel has `kPanel` contiguous elements for each index of the depth.
#pragma once

#include <algorithm>

#include "kernels/cpu/matmul/multiplication.h"
#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// low[2 i], low[2 i + 1] = a[i], b[i] for the first half of the lanes; high the same for the second half.
inline void interleave(Vector a, Vector b, Vector& low, Vector& high) {
#if TITAN_VECTOR_BYTES == 64
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif TITAN_VECTOR_BYTES == 32
  low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Transposes kWidth x kWidth elements: each round interleaves the first half of the vectors with the second.
inline void transpose(Vector (&rows)[kWidth]) {
  for (Index round = 1; round < kWidth; round *= 2) {
    Vector out[kWidth];
    for (Index i = 0; i < kWidth / 2; ++i) interleave(rows[i], rows[i + kWidth / 2], out[2 * i], out[2 * i + 1]);
    for (Index i = 0; i < kWidth; ++i) rows[i] = out[i];
  }
}

// Elements that are `across` apart within a panel and `along` apart in the depth.
template <typename T>
struct Strip {
  const T* data;
  Index across, along, count, depth;
};

// Packs up to kWidth of a panel's elements, contiguous along the depth. Writes kWidth floats for each index of the
// depth; those past the panel are overwritten by the next index.
template <Index kPanel, typename T>
void pack_transposed(const Strip<T>& strip, float* to) {
  const auto pack = [&](Index k, auto lanes, Index places) {
    Vector rows[kWidth];
    for (Index i = 0; i < kWidth; ++i)
      rows[i] = i < strip.count ? load(strip.data + i * strip.across + k, lanes) : Vector{};
    transpose(rows);
    for (Index j = 0; j < places; ++j) store(to + (k + j) * kPanel, rows[j]);
  };
  Index k = 0;
  for (; k + kWidth <= strip.depth; k += kWidth) pack(k, Whole{}, kWidth);
  if (k < strip.depth) pack(k, Part{strip.depth - k}, strip.depth - k);
}

// Packs a panel whose elements are contiguous and followed in the matrix by enough others to read full vectors.
template <Index kPanel, typename T>
void pack_neighbours(const Strip<T>& strip, float* to) {
  for (Index k = 0; k < strip.depth; ++k)
    for (Index i = 0; i < kPanel; i += kWidth) store(to + k * kPanel + i, load(strip.data + k * strip.along + i));
}

// Packs fewer elements than a panel has, padded with zeros.
template <Index kPanel, typename T>
void pack_few(const Strip<T>& strip, float* to) {
  for (Index k = 0; k < strip.depth; ++k)
    for (Index i = 0; i < kPanel; i += kWidth) {
      const Index lanes = std::clamp<Index>(strip.count - i, 0, kWidth);
      float values[kWidth];
      store(values, load(strip.data + k * strip.along + i, Part{lanes}));
      for (Index lane = 0; lane < std::min(kWidth, kPanel - i); ++lane) to[k * kPanel + i + lane] = values[lane];
    }
}

// Packs a strip: [panels][depth][kPanel], the last panel padded with zeros. Writes up to kWidth - 1 floats more.
template <Index kPanel, typename T>
void pack(const Strip<T>& strip, float* to) {
  static_assert(kPanel <= kWidth || kPanel % kWidth == 0);
  for (Index begin = 0; begin < strip.count; begin += kPanel, to += kPanel * strip.depth) {
    const Index count = strip.count - begin;
    Strip<T> panel{strip.data + begin * strip.across, strip.across, strip.along, std::min(count, kPanel), strip.depth};
    if (strip.along == 1) {
      for (Index i = 0; i < kPanel; i += kWidth) {
        pack_transposed<kPanel>(panel, to + i);
        panel.data += kWidth * strip.across;
        panel.count = std::max<Index>(panel.count - kWidth, 0);
      }
    } else if (count >= round_up(kPanel, kWidth)) {
      pack_neighbours<kPanel>(panel, to);
    } else {
      pack_few<kPanel>(panel, to);
    }
  }
}

// The `Panels` of multiplication.h in vectors. The sums of two panels fill the registers, except those for the operands
// at one index of the depth.
template <typename T>
struct VectorPanels {
  using Element = T;
  using Packed = float;
  using LeftPanel = const float*;
  struct Scope {};

  static constexpr Index kVectors = 2;  // vectors per row of sums
  static constexpr Index kLeft = TITAN_VECTOR_BYTES == 64 ? 12 : TITAN_VECTOR_BYTES == 32 ? 6 : 4;
  static constexpr Index kRight = kVectors * kWidth, kUnit = kWidth, kColumns = 256, kStep = 256;
  static constexpr Index kSlack = kWidth;  // floats that pack() may write past the last panel

  static Blocking blocking_of(const MatmulShape& shape) {
    return shape.depth > 1024 ? Blocking{480, 4096, 480} : Blocking{960, 1024, 240};
  }
  static Index left_size(Index count, Index depth) { return round_up(count, kLeft) * depth; }
  static Index right_size(Index count, Index depth) { return round_up(count, kRight) * depth; }

  static void pack_left(const Matrix<T>& from, const OperandPart& part, float* to) {
    pack<kLeft>(Strip<T>{from.data + part.begin * from.row_stride + part.depth * from.column_stride, from.row_stride,
                         from.column_stride, part.count, part.depth_count},
                to);
  }
  static void pack_right(const Matrix<T>& from, const OperandPart& part, float* to) {
    pack<kRight>(Strip<T>{from.data + part.depth * from.row_stride + part.begin * from.column_stride,
                          from.column_stride, from.row_stride, part.count, part.depth_count},
                 to);
  }

  static bool reads_in_place(const MatmulShape&, const Matrix<T>&) { return false; }
  static LeftPanel packed_panel(const float* packed) { return packed; }
  static LeftPanel panel_in_place(const Matrix<T>&, Index, Index) { return nullptr; }

  // Sets `to` to `from` (zeros if null) plus the product of two panels; both are [kLeft][kRight]. Not inlined: among
  // other code the compiler has no registers left for a row of the right panel, and reads it once per row of the left.
  [[gnu::noinline]] static void add_products(const float* left, const float* right, Index depth, const float* from,
                                             float* to) {
    Vector sums[kLeft][kVectors] = {};
    const auto for_sums = [](const auto& body) {
#pragma GCC unroll 16
      for (Index r = 0; r < kLeft; ++r)
#pragma GCC unroll 16
        for (Index c = 0; c < kVectors; ++c) body(r, c);
    };
    if (from) for_sums([&](Index r, Index c) { sums[r][c] = load(from + r * kRight + c * kWidth); });
    for (Index k = 0; k < depth; ++k, left += kLeft, right += kRight) {
      Vector columns[kVectors];
#pragma GCC unroll 16
      for (Index c = 0; c < kVectors; ++c) columns[c] = load(right + c * kWidth);
#pragma GCC unroll 16
      for (Index r = 0; r < kLeft; ++r) {
        const Vector row = spread(left[r]);
#pragma GCC unroll 16
        for (Index c = 0; c < kVectors; ++c) sums[r][c] += row * columns[c];
      }
    }
    for_sums([&](Index r, Index c) { store(to + r * kRight + c * kWidth, sums[r][c]); });
  }

  // Rounds and writes the sums that are inside the matrix.
  static void write(const float* sums, const PanelSums<T>& to) {
    const Index rows = std::min(kLeft, to.rows), columns = std::min(kRight, to.columns);
    for (Index r = 0; r < rows; ++r, sums += kRight)
      for_vectors(0, columns,
                  [&](Index c, auto lanes) { store(to.out + r * to.out_stride + c, load(sums + c), lanes); });
  }

  void multiply(LeftPanel left, const float* right, Index depth, LeftPanel, Index, const PanelSums<T>& to) {
    float last[kLeft * kRight];
    add_products(left, right, depth, to.is_first ? nullptr : to.memory, to.is_last ? last : to.memory);
    if (to.is_last) write(last, to);
  }
};

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
