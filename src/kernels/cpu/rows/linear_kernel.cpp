#include "kernels/cpu/rows/linear_kernel.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kMostRows = 8;
// A thread gets at least as many products as take longer than waking it.
constexpr std::int64_t kProductsOfAThread = std::int64_t{1} << 15;

template <typename T>
void run(LinearRows<T> linear, const LinearShape& shape, const at::Tensor& x, const at::Tensor& weight,
         const at::Tensor& out) {
  const std::int64_t grain = std::max<std::int64_t>(1, kProductsOfAThread / (shape.depth * shape.rows));
  const auto* const from = x.const_data_ptr<float>();
  const auto* const factors = static_cast<const T*>(weight.const_data_ptr());
  auto* const to = static_cast<T*>(out.mutable_data_ptr());
  parallel_for(0, weight.size(0), grain,
               [&](std::int64_t begin, std::int64_t end) { linear(shape, from, factors, begin, end, to); });
}

}  // namespace

const LinearKernels& best_linear() { return TITAN_BEST_KERNELS(kLinear); }

bool takes_few_rows(const at::Tensor& x, const at::Tensor& weight) {
  const auto dtype = weight.scalar_type();
  return x.is_cpu() && weight.is_cpu() && weight.dim() == 2 && x.dim() > 0 && x.size(-1) == weight.size(1) &&
         x.scalar_type() == dtype && (dtype == at::kFloat || dtype == at::kBFloat16) && x.numel() > 0 &&
         weight.numel() > 0 && x.numel() <= kMostRows * x.size(-1) && x.is_contiguous() && weight.is_contiguous();
}

at::Tensor linear_of_few_rows(const LinearKernels& kernels, const at::Tensor& x, const at::Tensor& weight) {
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  const at::Tensor out = at::empty(sizes, x.options());
  const LinearShape shape{x.numel() / weight.size(1), weight.size(1), weight.size(0)};
  if (x.scalar_type() == at::kFloat) {
    run<float>(kernels.float32, shape, x, weight, out);
  } else {
    run<BFloat16Bits>(kernels.bfloat16, shape, x.to(at::kFloat), weight, out);
  }
  return out;
}

}  // namespace titan::kernels
