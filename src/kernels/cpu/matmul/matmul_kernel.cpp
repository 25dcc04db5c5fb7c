#include "kernels/cpu/matmul/matmul_kernel.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

// Minimum rows or columns, and minimum multiplications, for tiles: a smaller matmul takes less time than packing the
// other operand.
constexpr std::int64_t kFewest = 32, kFewestProducts = std::int64_t{1} << 18;

bool has_neighbours(const at::Tensor& tensor) {
  return tensor.stride(0) > 0 && tensor.stride(1) > 0 && (tensor.stride(0) == 1 || tensor.stride(1) == 1);
}

bool is_strided(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.layout() == at::kStrided; }

template <typename T>
Matrix<T> matrix_of(const at::Tensor& tensor) {
  return {static_cast<const T*>(tensor.const_data_ptr()), tensor.stride(0), tensor.stride(1)};
}

// Number of parts of the rows and of the columns.
struct Grid {
  std::int64_t rows, columns;
};

// Returns the fastest grid of at most `parts` parts. Each part packs its own operands; packing a panel of 32 takes as
// long as multiplying two pairs of panels.
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

// Returns part `i` of `parts`: full panels except the last, or nothing if none is left.
Range part_of(std::int64_t count, std::int64_t i, std::int64_t parts) {
  const std::int64_t size = (count + 32 * parts - 1) / (32 * parts) * 32, begin = std::min(count, i * size);
  return {begin, std::min(size, count - begin)};
}

template <typename T>
struct Product {
  const MatmulKernels& kernels;
  Multiply<T> multiply;
  Matrix<T> left, right;
  T* out;
  std::int64_t out_stride, depth;

  // Computes one part, on this thread.
  void run_part(Range rows, Range columns) const {
    if (rows.count == 0 || columns.count == 0) return;
    const MatmulShape shape{rows.count, columns.count, depth};
    const at::Tensor workspace = at::empty({kernels.workspace(shape)}, at::kByte);
    multiply(shape, {left.data + rows.begin * left.row_stride, left.row_stride, left.column_stride},
             {right.data + columns.begin * right.column_stride, right.row_stride, right.column_stride},
             out + rows.begin * out_stride + columns.begin, out_stride, workspace.mutable_data_ptr());
  }
};

template <typename T>
void run(const MatmulKernels& kernels, Multiply<T> multiply, const at::Tensor& left, const at::Tensor& right,
         const at::Tensor& out) {
  const std::int64_t rows = left.size(0), columns = right.size(1);
  const Grid grid = grid_of(rows, columns, at::in_parallel_region() ? 1 : at::get_num_threads());
  const Product<T> product{
      kernels,       multiply,    matrix_of<T>(left), matrix_of<T>(right), static_cast<T*>(out.mutable_data_ptr()),
      out.stride(0), left.size(1)};
  parallel_for(0, grid.rows * grid.columns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      product.run_part(part_of(rows, i / grid.columns, grid.rows), part_of(columns, i % grid.columns, grid.columns));
  });
}

// Minimum multiplications for which ATen calls oneDNN.
constexpr std::int64_t kFewestForOneDnn = 16 * 16 * 16 + 1;

std::int64_t products_of(const at::Tensor& left, const at::Tensor& right) {
  return left.size(0) * left.size(1) * right.size(1);
}

at::Tensor dispatched_mm(const at::Tensor& left, const at::Tensor& right) {
  const MatmulKernels* const kernels = best_matmul(left, right);
  if (!kernels) return at::cpu::mm(left, right);
  const at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  matmul(*kernels, left, right, out);
  return out;
}

at::Tensor& dispatched_mm_out(const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  const MatmulKernels* const kernels = best_matmul(left, right);
  if (!kernels || out.scalar_type() != left.scalar_type() || !is_strided(out)) return at::cpu::mm_out(out, left, right);
  const bool is_written_directly = out.dim() == 2 && out.size(0) == left.size(0) && out.size(1) == right.size(1) &&
                                   out.stride(1) == 1 && out.stride(0) >= out.size(1) &&
                                   at::get_overlap_status(out, left) == at::MemOverlapStatus::No &&
                                   at::get_overlap_status(out, right) == at::MemOverlapStatus::No;
  if (is_written_directly) {
    matmul(*kernels, left, right, out);
    return out;
  }
  at::native::resize_output(out, {left.size(0), right.size(1)});
  return out.copy_(dispatched_mm(left, right));
}

at::Tensor dispatched_bmm(const at::Tensor& left, const at::Tensor& right) {
  const bool is_batch = left.dim() == 3 && right.dim() == 3 && left.size(0) == right.size(0) && left.size(0) > 0;
  const MatmulKernels* const kernels = is_batch ? best_matmul(left[0], right[0]) : nullptr;
  if (!kernels) return at::cpu::bmm(left, right);
  const at::Tensor out = at::empty({left.size(0), left.size(1), right.size(2)}, left.options());
  for (std::int64_t i = 0; i < out.size(0); ++i) matmul(*kernels, left[i], right[i], out[i]);
  return out;
}

}  // namespace

bool has_products(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? has_bfloat16_products() : dtype == at::kHalf && has_float16_products();
}

const MatmulKernels* best_matmul(const at::Tensor& left, const at::Tensor& right) {
#if defined(__x86_64__)
  if (has_bfloat16_tiles() && takes_matmul(amx::kMatmul, left, right)) return &amx::kMatmul;
#endif
  const MatmulKernels& vectors = TITAN_BEST_KERNELS(kMatmul);
  if (!takes_matmul(vectors, left, right)) return nullptr;
  const bool is_fast_in_aten = has_products(left.scalar_type()) && products_of(left, right) >= kFewestForOneDnn;
  return is_fast_in_aten ? nullptr : &vectors;
}

bool takes_matmul(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right) {
  const auto dtype = left.scalar_type();
  const bool is_product = is_strided(left) && is_strided(right) && left.dim() == 2 && right.dim() == 2 &&
                          left.size(1) == right.size(0) && right.scalar_type() == dtype;
  const bool has_kernel = dtype == at::kBFloat16 || (dtype == at::kHalf && kernels.multiply_float16);
  if (!is_product || !has_kernel || left.numel() == 0 || right.numel() == 0) return false;
#if defined(__x86_64__)
  if (&kernels == &amx::kMatmul)
    return has_neighbours(left) && has_neighbours(right) && std::min(left.size(0), right.size(1)) >= kFewest &&
           products_of(left, right) >= kFewestProducts;
#endif
  return true;
}

void matmul(const MatmulKernels& kernels, const at::Tensor& left, const at::Tensor& right, const at::Tensor& out) {
  const auto packable = [](const at::Tensor& tensor) { return has_neighbours(tensor) ? tensor : tensor.contiguous(); };
  if (left.scalar_type() == at::kBFloat16) {
    run<BFloat16Bits>(kernels, kernels.multiply_bfloat16, packable(left), packable(right), out);
  } else {
    run<Float16Bits>(kernels, kernels.multiply_float16, packable(left), packable(right), out);
  }
}

void install_matmul() {
  // Never unregistered: tensors may outlive any scope. "used" keeps the pointer, or leak checkers would report it.
  [[gnu::used]] static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    made->impl("mm", dispatched_mm);
    made->impl("mm.out", dispatched_mm_out);
    made->impl("bmm", dispatched_bmm);
    return made;
  }();
}

}  // namespace titan::kernels
