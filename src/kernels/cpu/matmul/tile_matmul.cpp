// bfloat16 matmuls in tiles: four tiles hold sums of 32 x 32 while the operands of a step go through the other four.
#include "kernels/cpu/matmul/tile_packing.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// Two tiles for each 32 elements of the depth: where the first is, and how many words from there to the second, to the
// next 32 elements, and from row to row.
struct TilePair {
  const Word* data;
  Index second, next, stride;
};

constexpr Index kSums = kPanel * kPanel;  // sums of a pair of panels
constexpr Index kColumnsOfBlock = 256, kRightPanels = kColumnsOfBlock / kPanel;

// Returns four of a panel's 32 rows, at the start of the depth: those to prefetch with right panel `number` of a step.
TilePair rows_to_fetch(const TilePair& panel, Index number) {
  const Index row = number * (kPanel / kRightPanels);
  TilePair rows = panel;
  rows.data += row / kTile * panel.second + row % kTile * panel.stride;
  return rows;
}

// Adds the product of two panels to the sums. `ahead` are rows of the next left panel, which are prefetched a few lines
// at a time: more would delay the data needed now.
void add_products(TilePair left, const Word* right, Index tiles, TilePair ahead) {
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

// Rounds and writes the rows and columns inside the matrix, from sums as store_sums() stores them.
void store_rounded(const float* sums, const PanelSums<BFloat16Bits>& to) {
  const __mmask32 there = to.columns >= kPanel ? 0xFFFFFFFFU : (1U << to.columns) - 1;
  for (Index r = 0; r < std::min(to.rows, kPanel); ++r) {
    const float* const row = sums + (r / kTile * 2 * kTile + r % kTile) * kTile;
    const auto both = _mm512_cvtne2ps_pbh(_mm512_load_ps(row + kTile * kTile), _mm512_load_ps(row));
    _mm512_mask_storeu_epi16(to.out + r * to.out_stride, there, reinterpret_cast<__m512i>(both));
  }
}

// The `Panels` of multiplication.h in tiles.
struct TilePanels {
  using Element = BFloat16Bits;
  using Packed = Word;
  using LeftPanel = TilePair;
  using Operand = Matrix<BFloat16Bits>;
  struct Scope {
    TileScope tiles{/*with_halves=*/false};
  };

  static constexpr Index kLeft = kPanel, kRight = kPanel, kUnit = kPanel, kColumns = kColumnsOfBlock, kSlack = 0;
  static constexpr Index kStep = 20 * kPanel;  // a left panel has 40 KiB

  // Packs the right operand of a block's columns once for all packed rows, if the cache holds it until the last of
  // them. For a larger depth each step is packed and used for all rows of larger blocks.
  static Blocking blocking_of(const MatmulShape& shape) {
    return shape.depth > 1024 ? Blocking{512, 8192, 512} : Blocking{1024, 1024, 256};
  }
  static Index left_size(Index count, Index depth) { return panels_of(count) * panels_of(depth) * kPair; }
  static Index right_size(Index count, Index depth) { return left_size(count, depth); }
  static void pack_left(const Operand& from, const OperandPart& part, Word* to) {
    TITAN_ISA::pack_left(from, part, to);
  }
  static void pack_right(const Operand& from, const OperandPart& part, Word* to) {
    TITAN_ISA::pack_right(from, part, to);
  }

  static LeftPanel packed_panel(const Word* packed) { return {packed, kPair / 2, kPair, kTile}; }
  // True if tiles can be read directly from the matrix: full tiles with rows of full cache lines, which do not all map
  // to the same few sets of the L1 cache (64 lines per way).
  static bool reads_in_place(const MatmulShape& shape, const Operand& left) {
    constexpr Index kLine = 32, kWay = 64;  // in elements; in lines
    return left.column_stride == 1 && left.row_stride % kLine == 0 && left.row_stride / kLine % (kWay / 2) != 0 &&
           reinterpret_cast<std::uintptr_t>(left.data) % 64 == 0 && shape.rows % kPanel == 0 &&
           shape.depth % kPanel == 0;
  }
  static LeftPanel panel_in_place(const Operand& left, Index row, Index depth) {
    const Index stride = left.row_stride / 2;
    return {reinterpret_cast<const Word*>(left.data + row * left.row_stride + depth), kTile * stride, kTile, stride};
  }

  void multiply(const LeftPanel& left, const Word* right, Index depth, const LeftPanel& next, Index number,
                const PanelSums<BFloat16Bits>& to) {
    to.is_first ? zero_sums() : load_sums(to.memory);
    add_products(left, right, panels_of(depth), rows_to_fetch(next, number));
    store_sums(to.is_last ? staged : to.memory);
    if (to.is_last) store_rounded(staged, to);
  }

  alignas(64) float staged[kSums];
};

using TileMultiplication = Multiplication<TilePanels>;

void multiply(const MatmulShape& shape, const Matrix<BFloat16Bits>& left, const Matrix<BFloat16Bits>& right,
              BFloat16Bits* out, Index out_stride, void* workspace) {
  TileMultiplication(shape, left, right, out, out_stride, workspace).run();
}

}  // namespace

extern const MatmulKernels kMatmul = {TITAN_STRING(TITAN_ISA), TileMultiplication::workspace, multiply, nullptr};

}  // namespace titan::kernels::TITAN_ISA
