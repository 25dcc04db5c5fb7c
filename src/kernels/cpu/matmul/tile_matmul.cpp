// The blocks are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), with tiles
// for registers: sums of 32 x 32 are in four tiles while the depth of a step goes through them. A left panel of a step
// stays in the first cache while the right ones pass it, those and the sums in the second.
#include "kernels/cpu/matmul/tile_matmul.h"

#include "kernels/cpu/matmul/packing.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kRows = 256, kColumns = 256;  // whose sums are in the second cache
constexpr Index kRowsPacked = 4 * kRows;      // of the left operand, for which right ones are packed once
constexpr Index kStep = 20 * kPanel;          // of the depth: a left panel has 40 KiB
constexpr Index kSums = kPanel * kPanel;      // of a pair of panels

// As much of the depth as the left operand has in 8 MiB, and no more of fewer rows.
Index depth_packed(const MatmulShape& shape) { return shape.rows <= kRowsPacked / 2 ? 8192 : 4096; }

struct Range {
  Index begin, count;
};

Index panels_of(Index count) { return (count + kPanel - 1) / kPanel; }

// body() of parts of at most `limit`, about the same size each, all but the last whole panels.
template <typename Body>
void for_parts(Index count, Index limit, const Body& body) {
  const Index parts = (count + limit - 1) / limit, size = round_up((count + parts - 1) / parts, kPanel);
  for (Index begin = 0; begin < count; begin += size) body(Range{begin, std::min(size, count - begin)});
}

// Two tiles of each place of the depth: where the first is, and how many words from there to the second, to the next
// place, and from row to row.
struct LeftPanel {
  const Word* data;
  Index second, next, stride;
};

// Whether tiles can be read where the matrix is: whole ones, whose rows are whole lines, and do not all fall into the
// same few places of the first cache (64 lines to a way).
bool is_in_place(const MatmulShape& shape, const Matrix& left) {
  constexpr Index kLine = 32, kWay = 64;  // in elements; in lines
  return left.column_stride == 1 && left.row_stride % kLine == 0 && left.row_stride / kLine % (kWay / 2) != 0 &&
         reinterpret_cast<std::uintptr_t>(left.data) % 64 == 0 && shape.rows % kPanel == 0 && shape.depth % kPanel == 0;
}

void add_products(LeftPanel left, const Word* right, Index tiles) {
  for (Index t = 0; t < tiles; ++t, left.data += left.next, right += kPair) {
    load_tile<4>(left.data, left.stride);
    load_passing_tile<6>(right, kTile);
    add_product<0, 4, 6>();
    load_passing_tile<7>(right + kTile * kTile, kTile);
    add_product<1, 4, 7>();
    load_tile<5>(left.data + left.second, left.stride);
    add_product<2, 5, 6>();
    add_product<3, 5, 7>();
  }
}

void zero_sums() {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
}
void load_sums(const float* from) {
  load_passing_tile<0>(from, kTile);
  load_passing_tile<1>(from + kSums / 4, kTile);
  load_passing_tile<2>(from + kSums / 2, kTile);
  load_passing_tile<3>(from + 3 * kSums / 4, kTile);
}
void store_sums(float* to) {
  store_tile<0>(to, kTile);
  store_tile<1>(to + kSums / 4, kTile);
  store_tile<2>(to + kSums / 2, kTile);
  store_tile<3>(to + 3 * kSums / 4, kTile);
}

// The rows and columns that there are, of the sums as store_sums() leaves them.
void store_rounded(const float* sums, Index rows, Index columns, BFloat16Bits* out, Index stride) {
  const __mmask32 there = columns >= kPanel ? 0xFFFFFFFFU : (1U << columns) - 1;
  for (Index r = 0; r < std::min(rows, kPanel); ++r) {
    const float* const row = sums + (r / kTile * 2 * kTile + r % kTile) * kTile;
    const auto both = _mm512_cvtne2ps_pbh(_mm512_load_ps(row + kTile * kTile), _mm512_load_ps(row));
    _mm512_mask_storeu_epi16(out + r * stride, there, reinterpret_cast<__m512i>(both));
  }
}

class Multiplication {
 public:
  Multiplication(const MatmulShape& shape, const Matrix& left, const Matrix& right, BFloat16Bits* out, Index out_stride,
                 void* workspace)
      : shape_(shape),
        left_(left),
        right_(right),
        out_(out),
        out_stride_(out_stride),
        in_place_(is_in_place(shape, left)),
        packed_left_(static_cast<Word*>(workspace)),
        packed_right_(packed_left_ + left_words(shape)),
        sums_(reinterpret_cast<float*>(packed_right_ + right_words(shape))) {}

  static Index workspace(const MatmulShape& shape) {
    return 4 * (left_words(shape) + right_words(shape) + num_sums(shape));
  }

  void run() {
    const TileScope scope(false);
    for_parts(shape_.rows, kRowsPacked, [&](Range rows) {
      for_parts(shape_.depth, depth_packed(shape_), [&](Range depth) {
        if (!in_place_)
          for_parts(depth.count, kStep, [&](Range step) {
            pack_left(left_, {rows.begin, rows.count, depth.begin + step.begin, step.count},
                      packed_left_ + left_offset(rows, step.begin));
          });
        for_parts(shape_.columns, kColumns, [&](Range columns) { multiply(rows, depth, columns); });
      });
    });
  }

 private:
  static Index pair_words(Index count, Index depth) { return panels_of(count) * panels_of(depth) * kPair; }
  static Index left_words(const MatmulShape& shape) {
    return pair_words(std::min(shape.rows, kRowsPacked), std::min(shape.depth, depth_packed(shape)));
  }
  static Index right_words(const MatmulShape& shape) {
    return pair_words(std::min(shape.columns, kColumns), std::min(shape.depth, depth_packed(shape)));
  }
  // Then the sums of all columns wait for the next part of the depth.
  static bool has_parts(const MatmulShape& shape) { return shape.depth > depth_packed(shape); }
  static Index columns_of_sums(const MatmulShape& shape) {
    return has_parts(shape) ? shape.columns : std::min(shape.columns, kColumns);
  }
  static Index num_sums(const MatmulShape& shape) {
    const Index rows = std::min(shape.rows, has_parts(shape) ? kRowsPacked : kRows);
    return panels_of(rows) * panels_of(columns_of_sums(shape)) * kSums;
  }

  static Index left_offset(Range rows, Index depth) { return pair_words(rows.count, depth); }
  // From row `row` of `rows` on, at `step` of a part of the depth that begins at `depth`.
  LeftPanel left_panel(Range rows, Index row, Index depth, Range step) const {
    if (in_place_) {
      const Index stride = left_.row_stride / 2;
      const auto* const first = left_.data + (rows.begin + row) * left_.row_stride + depth + step.begin;
      return {reinterpret_cast<const Word*>(first), kTile * stride, kTile, stride};
    }
    return {packed_left_ + left_offset(rows, step.begin) + pair_words(row, step.count), kPair / 2, kPair, kTile};
  }
  float* sums_of(Index row, Index column) const {
    return sums_ + (row / kPanel * panels_of(columns_of_sums(shape_)) + column / kPanel) * kSums;
  }

  void multiply(Range rows, Range depth, Range columns) {
    for_parts(rows.count, kRows, [&](Range some_rows) {
      for_parts(depth.count, kStep, [&](Range step) {
        Word* const right = packed_right_ + pair_words(columns.count, step.begin);
        if (some_rows.begin == 0)
          pack_right(right_, {columns.begin, columns.count, depth.begin + step.begin, step.count}, right);
        for (Index r = 0; r < some_rows.count; r += kPanel)
          multiply_panel(rows, some_rows.begin + r, depth, step, columns, right);
      });
    });
  }

  // One left panel times the right ones.
  void multiply_panel(Range rows, Index row, Range depth, Range step, Range columns, const Word* right) {
    const LeftPanel left = left_panel(rows, row, depth.begin, step);
    const bool is_first = depth.begin + step.begin == 0;
    const bool is_last = depth.begin + step.begin + step.count == shape_.depth;
    for (Index c = 0; c < columns.count; c += kPanel, right += pair_words(kPanel, step.count)) {
      float* const sums = has_parts(shape_) ? sums_of(row, columns.begin + c) : sums_of(row % kRows, c);
      is_first ? zero_sums() : load_sums(sums);
      add_products(left, right, panels_of(step.count));
      store_sums(is_last ? staged_ : sums);
      if (is_last)
        store_rounded(staged_, rows.count - row, columns.count - c,
                      out_ + (rows.begin + row) * out_stride_ + columns.begin + c, out_stride_);
    }
  }

  const MatmulShape shape_;
  const Matrix left_, right_;
  BFloat16Bits* const out_;
  const Index out_stride_;
  const bool in_place_;
  Word *const packed_left_, *const packed_right_;
  float* const sums_;
  alignas(64) float staged_[kSums];
};

}  // namespace

Index matmul_workspace(const MatmulShape& shape) { return Multiplication::workspace(shape); }

void matmul(const MatmulShape& shape, const Matrix& left, const Matrix& right, BFloat16Bits* out, Index out_stride,
            void* workspace) {
  Multiplication(shape, left, right, out, out_stride, workspace).run();
}

}  // namespace titan::kernels::TITAN_ISA
