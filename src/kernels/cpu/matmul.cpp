#include "kernels/cpu/matmul.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/tile_matmul.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

// Fewer rows or columns than these are done before the other operand is packed.
constexpr std::int64_t kFewest = 32, kFewestProducts = std::int64_t{1} << 18;

bool is_matrix(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == 2 &&
         tensor.scalar_type() == at::kBFloat16 && tensor.stride(0) > 0 && tensor.stride(1) > 0 &&
         (tensor.stride(0) == 1 || tensor.stride(1) == 1);
}

Matrix matrix_of(const at::Tensor& tensor) {
  return {static_cast<const BFloat16Bits*>(tensor.const_data_ptr()), tensor.stride(0), tensor.stride(1)};
}

// How many parts of the rows and of the columns.
struct Grid {
  std::int64_t rows, columns;
};

// Of all grids of so many parts the fastest. Each part packs its own operands; a panel of 32 takes as long to pack as two
// products of panels.
Grid grid_of(std::int64_t rows, std::int64_t columns, std::int64_t parts) {
  const auto panels = [](std::int64_t count, std::int64_t in) { return (count + 32 * in - 1) / (32 * in); };
  Grid best{1, 1};
  auto best_time = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t r = 1; r <= parts; ++r) {
    const Grid grid{r, parts / r};
    const std::int64_t high = panels(rows, grid.rows), wide = panels(columns, grid.columns);
    const std::int64_t time = high * wide + 2 * (high + wide);
    if (time < best_time) {
      best_time = time;
      best = grid;
    }
  }
  return best;
}

struct Range {
  std::int64_t begin, count;
};

// Part `i` of `parts`, whole panels but for the last; there may be nothing left for it.
Range part_of(std::int64_t count, std::int64_t i, std::int64_t parts) {
  const std::int64_t size = (count + 32 * parts - 1) / (32 * parts) * 32, begin = std::min(count, i * size);
  return {begin, std::min(size, count - begin)};
}

// One part, on this thread.
void multiply(Range rows, Range columns, std::int64_t depth, Matrix left, Matrix right, BFloat16Bits* out,
              std::int64_t out_stride) {
#if defined(__x86_64__)
  if (rows.count == 0 || columns.count == 0) return;
  left.data += rows.begin * left.row_stride;
  right.data += columns.begin * right.column_stride;
  const MatmulShape shape{rows.count, columns.count, depth};
  const at::Tensor workspace = at::empty({amx::matmul_workspace(shape)}, at::kByte);
  amx::matmul(shape, left, right, out + rows.begin * out_stride + columns.begin, out_stride,
              workspace.mutable_data_ptr());
#endif
}

at::Tensor dispatched_mm(const at::Tensor& left, const at::Tensor& right) {
  if (!takes_matmul(left, right)) return at::cpu::mm(left, right);
  const at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  matmul(left, right, out);
  return out;
}

at::Tensor& dispatched_mm_out(const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  const bool is_ours = takes_matmul(left, right) && is_matrix(out) && out.size(0) == left.size(0) &&
                       out.size(1) == right.size(1) && out.stride(1) == 1 &&
                       at::get_overlap_status(out, left) == at::MemOverlapStatus::No &&
                       at::get_overlap_status(out, right) == at::MemOverlapStatus::No;
  if (!is_ours) return at::cpu::mm_out(out, left, right);
  matmul(left, right, out);
  return out;
}

}  // namespace

bool takes_matmul(const at::Tensor& left, const at::Tensor& right) {
  return has_bfloat16_tiles() && is_matrix(left) && is_matrix(right) && left.size(1) == right.size(0) &&
         std::min(left.size(0), right.size(1)) >= kFewest &&
         left.size(0) * left.size(1) * right.size(1) >= kFewestProducts;
}

void matmul(const at::Tensor& left, const at::Tensor& right, const at::Tensor& out) {
  const std::int64_t rows = left.size(0), columns = right.size(1), depth = left.size(1);
  const Grid grid = grid_of(rows, columns, at::in_parallel_region() ? 1 : at::get_num_threads());
  const Matrix of_left = matrix_of(left), of_right = matrix_of(right);
  auto* const to = static_cast<BFloat16Bits*>(out.mutable_data_ptr());
  parallel_for(0, grid.rows * grid.columns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      multiply(part_of(rows, i / grid.columns, grid.rows), part_of(columns, i % grid.columns, grid.columns), depth,
               of_left, of_right, to, out.stride(0));
  });
}

void install_matmul() {
  // Never unregistered: tensors may outlive any scope.
  [[maybe_unused]] static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    made->impl("mm", dispatched_mm);
    made->impl("mm.out", dispatched_mm_out);
    return made;
  }();
}

}  // namespace titan::kernels
