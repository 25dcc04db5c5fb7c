// Blocking of a matmul, independent of the instructions that multiply. The blocks are those of Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (2008). A left panel of a step of the depth stays in the L1 cache
// while the right panels pass it; the right panels and the sums stay in L2.
//
// `Panels` defines how operands are packed into panels and how two panels are multiplied:
//
//   Element, Packed                     element types of the matrices and of packed panels
//   kLeft, kRight                       rows of a left panel, columns of a right one
//   kUnit                               steps of the depth are multiples of it, except the last
//   kColumns, kStep                     columns of a block of sums; the depth of a step
//   blocking_of(shape)                  returns the Blocking
//   left_size(count, depth)             returns the Packed elements of `count` rows
//   right_size(count, depth)            returns the Packed elements of `count` columns
//   kSlack                              Packed elements past the left ones that pack_left() may write
//   pack_left(matrix, part, to)         packs a part of the left operand: [panels][depth]
//   pack_right(matrix, part, to)        packs a part of the right operand: [panels][depth]
//   LeftPanel                           location of a left panel: packed, or in the matrix
//   packed_panel(packed)                returns the LeftPanel of packed elements
//   reads_in_place(shape, left)         true if the left operand need not be packed
//   panel_in_place(left, row, depth)    returns the LeftPanel in the matrix
//   Scope                               exists while panels are multiplied
//   multiply(left, right, depth, next, number, sums)
//       Adds the product of two panels to `sums` [kLeft][kRight], whose element order is up to `Panels`. `next` is the
//       next left panel and `number` the index of the right panel in its step, both for prefetching.
#pragma once

#include <algorithm>

#include "kernels/cpu/matmul/matmul_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// Rows and depth of the left operand that are packed at once, and rows of a block of sums. Rows are multiples of kLeft.
struct Blocking {
  Index rows_packed, depth_packed, rows;
};

// A part of an operand: rows (or columns) from `begin` on, and the depth from `depth` on.
struct OperandPart {
  Index begin, count, depth, depth_count;
};

// The destination of the sums of two panels.
template <typename T>
struct PanelSums {
  float* memory;           // [kLeft][kRight], kept between steps of the depth
  bool is_first, is_last;  // step of the depth; first: no sums yet; last: they are rounded and written to `out`
  T* out;
  Index out_stride, rows, columns;  // up to the end of the matrix, perhaps more than a panel has
};

struct Range {
  Index begin, count;
};

// Calls body(part) for parts of at most `limit`, of about the same size, all but the last multiples of `unit`.
template <typename Body>
void for_parts(Index count, Index limit, Index unit, const Body& body) {
  const Index parts = (count + limit - 1) / limit, size = round_up((count + parts - 1) / parts, unit);
  for (Index begin = 0; begin < count; begin += size) body(Range{begin, std::min(size, count - begin)});
}

template <typename Panels>
class Multiplication {
 public:
  using Element = typename Panels::Element;
  using Packed = typename Panels::Packed;
  using Operand = Matrix<Element>;

  Multiplication(const MatmulShape& shape, const Operand& left, const Operand& right, Element* out, Index out_stride,
                 void* workspace)
      : shape_(shape),
        left_(left),
        right_(right),
        out_(out),
        out_stride_(out_stride),
        blocking_(Panels::blocking_of(shape)),
        in_place_(Panels::reads_in_place(shape, left)),
        packed_left_(static_cast<Packed*>(workspace)),
        packed_right_(packed_left_ + left_size(shape)),
        sums_(reinterpret_cast<float*>(packed_right_ + right_size(shape))) {}

  static Index workspace(const MatmulShape& shape) {
    return static_cast<Index>(sizeof(Packed)) * (left_size(shape) + right_size(shape)) + 4 * num_sums(shape);
  }

  void run() {
    [[maybe_unused]] const typename Panels::Scope scope;
    for_parts(shape_.rows, blocking_.rows_packed, Panels::kLeft, [&](Range rows) {
      for_parts(shape_.depth, blocking_.depth_packed, Panels::kUnit, [&](Range depth) {
        if (!in_place_) pack_all_left(rows, depth);
        for_parts(shape_.columns, Panels::kColumns, Panels::kRight, [&](Range columns) {
          multiply({rows, depth, columns});
        });
      });
    });
  }

 private:
  // The rows of the left operand that are packed, their part of the depth, and columns.
  struct Block {
    Range rows, depth, columns;
  };

  static_assert(Panels::kColumns % Panels::kRight == 0 && Panels::kStep % Panels::kUnit == 0);
  static constexpr Index kSums = Panels::kLeft * Panels::kRight;  // sums of two panels

  static Index panels_of(Index count, Index panel) { return (count + panel - 1) / panel; }
  static Index left_size(const MatmulShape& shape) {
    const Blocking blocking = Panels::blocking_of(shape);
    return Panels::left_size(std::min(shape.rows, blocking.rows_packed), std::min(shape.depth, blocking.depth_packed)) +
           Panels::kSlack;
  }
  static Index right_size(const MatmulShape& shape) {
    return Panels::right_size(std::min(shape.columns, Panels::kColumns),
                              keeps_right(shape) ? shape.depth : std::min(shape.depth, Panels::kStep));
  }
  // True if a right operand packed for one block is reused by the blocks of other rows, which come before the next
  // columns.
  static bool keeps_right(const MatmulShape& shape) {
    const Blocking blocking = Panels::blocking_of(shape);
    return blocking.rows < blocking.rows_packed;
  }
  // True if the depth has several parts, so that the sums of all columns are kept until the next part.
  static bool has_parts(const MatmulShape& shape) { return shape.depth > Panels::blocking_of(shape).depth_packed; }
  static Index columns_of_sums(const MatmulShape& shape) {
    return has_parts(shape) ? shape.columns : std::min(shape.columns, Panels::kColumns);
  }
  static Index num_sums(const MatmulShape& shape) {
    const Index rows = std::min(shape.rows, Panels::blocking_of(shape).rows);
    return panels_of(rows, Panels::kLeft) * panels_of(columns_of_sums(shape), Panels::kRight) * kSums;
  }

  void pack_all_left(Range rows, Range depth) {
    for_parts(depth.count, Panels::kStep, Panels::kUnit, [&](Range step) {
      Panels::pack_left(left_, {rows.begin, rows.count, depth.begin + step.begin, step.count},
                        packed_left_ + Panels::left_size(rows.count, step.begin));
    });
  }

  typename Panels::LeftPanel left_panel(const Block& block, Range step, Index row) const {
    if (in_place_) return Panels::panel_in_place(left_, block.rows.begin + row, block.depth.begin + step.begin);
    return Panels::packed_panel(packed_left_ + Panels::left_size(block.rows.count, step.begin) +
                                Panels::left_size(row, step.count));
  }
  float* sums_of(const Block& block, Index row, Index column) const {
    const Index row_panel = row / Panels::kLeft;
    const Index column_panel = ((has_parts(shape_) ? block.columns.begin : 0) + column) / Panels::kRight;
    return sums_ + (row_panel * panels_of(columns_of_sums(shape_), Panels::kRight) + column_panel) * kSums;
  }

  void multiply(const Block& block) {
    for_parts(block.rows.count, blocking_.rows, Panels::kLeft, [&](Range rows) {
      for_parts(block.depth.count, Panels::kStep, Panels::kUnit, [&](Range step) {
        Packed* const right =
            packed_right_ + (keeps_right(shape_) ? Panels::right_size(block.columns.count, step.begin) : 0);
        if (rows.begin == 0)
          Panels::pack_right(
              right_, {block.columns.begin, block.columns.count, block.depth.begin + step.begin, step.count}, right);
        for (Index r = 0; r < rows.count; r += Panels::kLeft) multiply_panel(block, rows, step, r, right);
      });
    });
  }

  // Multiplies the left panel from row `r` of `rows` on by the right ones.
  void multiply_panel(const Block& block, Range rows, Range step, Index r, const Packed* right) {
    const Index row = rows.begin + r;
    const auto left = left_panel(block, step, row);
    const auto next = left_panel(block, step, r + Panels::kLeft < rows.count ? row + Panels::kLeft : row);
    const Index depth = block.depth.begin + step.begin;
    const bool is_first = depth == 0, is_last = depth + step.count == shape_.depth;
    Index number = 0;
    for (Index c = 0; c < block.columns.count; c += Panels::kRight, ++number) {
      Element* const out = out_ + (block.rows.begin + row) * out_stride_ + block.columns.begin + c;
      const PanelSums<Element> sums{sums_of(block, r, c),   is_first, is_last, out, out_stride_, block.rows.count - row,
                                    block.columns.count - c};
      panels_.multiply(left, right + number * Panels::right_size(Panels::kRight, step.count), step.count, next, number,
                       sums);
    }
  }

  const MatmulShape shape_;
  const Operand left_, right_;
  Element* const out_;
  const Index out_stride_;
  const Blocking blocking_;
  const bool in_place_;
  Packed *const packed_left_, *const packed_right_;
  float* const sums_;
  Panels panels_;
};

}  // namespace
}  // namespace titan::kernels::TITAN_ISA
