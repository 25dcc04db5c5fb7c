// The blocks are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), with tiles
// for registers: sums of 32 x 32 are in four tiles while the depth of a step goes through them. A left panel of a step
// stays in the first cache while the right ones pass it, those and the sums in the second.
#include "kernels/cpu/matmul/tile_matmul.h"

#include "kernels/cpu/matmul/packing.h"

namespace titan::kernels::TITAN_ISA {
namespace {

constexpr Index kColumns = 256;           // of a block of sums
constexpr Index kStep = 20 * kPanel;      // of the depth: a left panel has 40 KiB
constexpr Index kSums = kPanel * kPanel;  // of a pair of panels
constexpr Index kRightPanels = kColumns / kPanel;

// Of what is packed of the left operand at once, and of a block of sums, which the second cache holds with a step of the
// right operand.
struct Blocking {
  Index rows_packed, depth_packed, rows;
};

// The right operand of a block's columns is packed once for all rows that are packed, if the cache holds it until the
// last of them. Of a deeper product each step is packed and used for all rows of larger blocks.
Blocking blocking_of(const MatmulShape& shape) {
  return shape.depth > 1024 ? Blocking{512, 8192, 512} : Blocking{1024, 1024, 256};
}

struct Range {
  Index begin, count;
};

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

// Four of a panel's 32 rows, at the first place of the depth: which four for right panel `number` of a step.
LeftPanel rows_to_fetch(const LeftPanel& panel, Index number) {
  const Index row = number * (kPanel / kRightPanels);
  LeftPanel rows = panel;
  rows.data += row / kTile * panel.second + row % kTile * panel.stride;
  return rows;
}

// `ahead` are rows of the left panel that comes next, which are fetched on the way: a few lines at a time, since more
// would keep what is needed now waiting.
void add_products(LeftPanel left, const Word* right, Index tiles, LeftPanel ahead) {
  for (Index t = 0; t < tiles; ++t, left.data += left.next, right += kPair, ahead.data += ahead.next) {
    for (Index r = 0; r < kPanel / kRightPanels; ++r) _mm_prefetch(ahead.data + r * ahead.stride, _MM_HINT_T1);
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
        blocking_(blocking_of(shape)),
        in_place_(is_in_place(shape, left)),
        packed_left_(static_cast<Word*>(workspace)),
        packed_right_(packed_left_ + left_words(shape)),
        sums_(reinterpret_cast<float*>(packed_right_ + right_words(shape))) {}

  static Index workspace(const MatmulShape& shape) {
    return 4 * (left_words(shape) + right_words(shape) + num_sums(shape));
  }

  void run() {
    const TileScope scope(false);
    for_parts(shape_.rows, blocking_.rows_packed, [&](Range rows) {
      for_parts(shape_.depth, blocking_.depth_packed, [&](Range depth) {
        if (!in_place_) pack_all_left(rows, depth);
        for_parts(shape_.columns, kColumns, [&](Range columns) { multiply({rows, depth, columns}); });
      });
    });
  }

 private:
  // Of the rows that are packed of the left operand, from their part of the depth.
  struct Block {
    Range rows, depth, columns;
  };

  static Index pair_words(Index count, Index depth) { return panels_of(count) * panels_of(depth) * kPair; }
  static Index left_words(const MatmulShape& shape) {
    const Blocking blocking = blocking_of(shape);
    return pair_words(std::min(shape.rows, blocking.rows_packed), std::min(shape.depth, blocking.depth_packed));
  }
  static Index right_words(const MatmulShape& shape) {
    return pair_words(std::min(shape.columns, kColumns), keeps_right(shape) ? shape.depth : kStep);
  }
  // Whether there are blocks after the first that use it.
  static bool keeps_right(const MatmulShape& shape) {
    const Blocking blocking = blocking_of(shape);
    return blocking.rows < blocking.rows_packed;
  }
  // Then the sums of all columns wait for the next part of the depth.
  static bool has_parts(const MatmulShape& shape) { return shape.depth > blocking_of(shape).depth_packed; }
  static Index columns_of_sums(const MatmulShape& shape) {
    return has_parts(shape) ? shape.columns : std::min(shape.columns, kColumns);
  }
  static Index num_sums(const MatmulShape& shape) {
    return panels_of(std::min(shape.rows, blocking_of(shape).rows)) * panels_of(columns_of_sums(shape)) * kSums;
  }

  void pack_all_left(Range rows, Range depth) {
    for_parts(depth.count, kStep, [&](Range step) {
      pack_left(left_, {rows.begin, rows.count, depth.begin + step.begin, step.count},
                packed_left_ + pair_words(rows.count, step.begin));
    });
  }

  LeftPanel left_panel(const Block& block, Range step, Index row) const {
    if (in_place_) {
      const Index stride = left_.row_stride / 2;
      const auto* const first =
          left_.data + (block.rows.begin + row) * left_.row_stride + block.depth.begin + step.begin;
      return {reinterpret_cast<const Word*>(first), kTile * stride, kTile, stride};
    }
    return {packed_left_ + pair_words(block.rows.count, step.begin) + pair_words(row, step.count), kPair / 2, kPair,
            kTile};
  }
  float* sums_of(const Block& block, Index row, Index column) const {
    const Index row_panel = row % blocking_.rows / kPanel;
    const Index column_panel = ((has_parts(shape_) ? block.columns.begin : 0) + column) / kPanel;
    return sums_ + (row_panel * panels_of(columns_of_sums(shape_)) + column_panel) * kSums;
  }

  void multiply(const Block& block) {
    for_parts(block.rows.count, blocking_.rows, [&](Range rows) {
      for_parts(block.depth.count, kStep, [&](Range step) {
        Word* const right = packed_right_ + (keeps_right(shape_) ? pair_words(block.columns.count, step.begin) : 0);
        if (rows.begin == 0)
          pack_right(right_, {block.columns.begin, block.columns.count, block.depth.begin + step.begin, step.count},
                     right);
        for (Index r = 0; r < rows.count; r += kPanel) {
          const Index row = rows.begin + r, next = r + kPanel < rows.count ? row + kPanel : row;
          multiply_panel(block, step, row, right, left_panel(block, step, next));
        }
      });
    });
  }

  // The left panel from `row` on times the right ones.
  void multiply_panel(const Block& block, Range step, Index row, const Word* right, const LeftPanel& next) {
    const LeftPanel left = left_panel(block, step, row);
    const Index depth = block.depth.begin + step.begin;
    const bool is_first = depth == 0, is_last = depth + step.count == shape_.depth;
    for (Index c = 0; c < block.columns.count; c += kPanel, right += pair_words(kPanel, step.count)) {
      float* const sums = sums_of(block, row, c);
      is_first ? zero_sums() : load_sums(sums);
      add_products(left, right, panels_of(step.count), rows_to_fetch(next, c / kPanel));
      store_sums(is_last ? staged_ : sums);
      if (is_last)
        store_rounded(staged_, block.rows.count - row, block.columns.count - c,
                      out_ + (block.rows.begin + row) * out_stride_ + block.columns.begin + c, out_stride_);
    }
  }

  const MatmulShape shape_;
  const Matrix left_, right_;
  BFloat16Bits* const out_;
  const Index out_stride_;
  const Blocking blocking_;
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
