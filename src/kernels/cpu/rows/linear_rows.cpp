// Compiled with TITAN_ISA (the namespace) and TITAN_VECTOR_BYTES, see CMakeLists.txt.
#include "kernels/cpu/rows/linear_rows.h"

#include "kernels/cpu/simd/vector.h"

namespace titan::kernels::TITAN_ISA {
namespace {

// The weight is read once from memory, row by row and from its begin to its end: what the processor fetches ahead best.
// Reading several rows in turn took nearly twice as long.
constexpr Index kChains = 4;  // independent partial sums

template <typename T>
float dot(Index depth, const float* x, const T* weight) {
  Vector sums[kChains] = {};
  Index i = 0;
  for (; i + kChains * kWidth <= depth; i += kChains * kWidth)
    for (Index c = 0; c < kChains; ++c) sums[c] += load(weight + i + c * kWidth) * load(x + i + c * kWidth);
  for_vectors(i, depth, [&](Index at, auto lanes) { sums[0] += load(weight + at, lanes) * load(x + at, lanes); });
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <typename T>
void linear(const LinearShape& shape, const float* x, const T* weight, Index first, Index past_last, T* out) {
  for (Index j = first; j < past_last; ++j)
    for (Index row = 0; row < shape.rows; ++row)
      assign(out[row * shape.out_stride + j], dot(shape.depth, x + row * shape.depth, weight + j * shape.depth));
}

}  // namespace

extern const LinearKernels kLinear = {TITAN_STRING(TITAN_ISA), linear<float>, linear<BFloat16Bits>};

}  // namespace titan::kernels::TITAN_ISA
