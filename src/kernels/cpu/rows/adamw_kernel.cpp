#include "kernels/cpu/rows/adamw_kernel.h"

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kUnitsPerThread = 32768 / kAdamWUnit;  // minimum: fewer take less time than waking a thread

}  // namespace

const AdamWKernels& best_adamw() { return TITAN_BEST_KERNELS(kAdamW); }

bool takes_adamw(const AdamWTensors& tensors) {
  const auto fits = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
           tensor.sizes() == tensors.param.sizes();
  };
  return fits(tensors.param) && fits(tensors.grad) && fits(tensors.exp_avg) && fits(tensors.exp_avg_sq);
}

void adamw(const AdamWKernels& kernels, const AdamWTensors& tensors, const AdamWStep& step) {
  auto* const param = tensors.param.mutable_data_ptr<float>();
  const auto* const grad = tensors.grad.const_data_ptr<float>();
  auto* const exp_avg = tensors.exp_avg.mutable_data_ptr<float>();
  auto* const exp_avg_sq = tensors.exp_avg_sq.mutable_data_ptr<float>();
  const std::int64_t count = tensors.param.numel(), units = (count + kAdamWUnit - 1) / kAdamWUnit;
  parallel_for(0, units, kUnitsPerThread, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * kAdamWUnit, end = std::min(last * kAdamWUnit, count);
    kernels.update(end - begin, {param + begin, grad + begin, exp_avg + begin, exp_avg_sq + begin}, step);
  });
  // Bumps versions as in-place operators do, so that autograd refuses a backward that saved one of these before.
  for (const auto* tensor : {&tensors.param, &tensors.exp_avg, &tensors.exp_avg_sq})
    tensor->unsafeGetTensorImpl()->bump_version();
}

}  // namespace titan::kernels
