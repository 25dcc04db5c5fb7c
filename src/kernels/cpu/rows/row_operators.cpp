#include "kernels/cpu/rows/row_operators.h"

#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

#include "kernels/cpu/rows/adamw_kernel.h"
#include "kernels/cpu/rows/cross_entropy_kernel.h"
#include "kernels/cpu/rows/fused_kernels.h"
#include "kernels/cpu/rows/linear_kernel.h"

namespace titan::kernels {
namespace {

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Tensors2 rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return takes_rms_norm(x, weight) ? rms_norm_forward(best_fused_kernels(), x, weight, eps) : Tensors2();
}

Tensors3 add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  return takes_add_rms_norm(x, delta, weight) ? add_rms_norm_forward(best_fused_kernels(), x, delta, weight, eps)
                                              : Tensors3();
}

Tensors2 rms_norm_gradients(const at::Tensor& out_grad, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& rrms, const std::optional<at::Tensor>& more) {
  return rms_norm_backward(best_fused_kernels(), out_grad, x, weight, rrms, more.value_or(at::Tensor()));
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& factors, bool conjugate) {
  return takes_rotation(x, factors) ? rotate(best_fused_kernels(), x, factors, conjugate) : at::Tensor();
}

at::Tensor halves_rotated(const at::Tensor& x, const at::Tensor& factors, bool conjugate) {
  return takes_rotation(x, factors) ? rotate_halves(best_fused_kernels(), x, factors, conjugate) : at::Tensor();
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return takes_swiglu(gate, up) ? swiglu_forward(best_fused_kernels(), gate, up) : at::Tensor();
}

Tensors2 swiglu_gradients(const at::Tensor& out_grad, const at::Tensor& gate, const at::Tensor& up) {
  return swiglu_backward(best_fused_kernels(), out_grad, gate, up);
}

at::Tensor few_rows(const at::Tensor& x, const at::Tensor& weight) {
  return takes_few_rows(x, weight) ? linear_of_few_rows(best_linear(), x, weight) : at::Tensor();
}

Tensors2 cross_entropy(const at::Tensor& logits, const at::Tensor& labels, std::int64_t ignored) {
  if (!takes(logits, labels)) return {};
  auto [loss, stats] = cross_entropy_forward(best_cross_entropy(), logits, labels, ignored);
  return {std::move(loss), std::move(stats)};
}

at::Tensor stats_of_part(const at::Tensor& logits, const at::Tensor& labels) {
  return takes(logits, labels) ? softmax_stats(best_cross_entropy(), logits, labels) : at::Tensor();
}

bool cross_entropy_gradient(const at::Tensor& loss_grad, const at::Tensor& logits, const at::Tensor& labels,
                            const at::Tensor& stats, const at::Tensor& grad) {
  if (!takes(logits, labels)) return false;
  cross_entropy_backward(best_cross_entropy(), loss_grad, logits, labels, stats, grad);
  return true;
}

bool adamw_step(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg,
                const at::Tensor& exp_avg_sq, double lr, double beta1, double beta2, double eps, double weight_decay,
                double step, double grad_factor, const std::optional<at::Tensor>& sums) {
  const AdamWTensors tensors{param, grad, exp_avg, exp_avg_sq};
  if (!takes_adamw(tensors)) return false;
  const AdamWStep numbers{.lr = lr,
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .eps = eps,
                          .weight_decay = weight_decay,
                          .step = static_cast<float>(step),
                          .grad_factor = static_cast<float>(grad_factor)};
  if (!sums) {
    adamw(best_adamw(), tensors, numbers);
    return true;
  }
  AdamWSums read, wrote;
  adamw_and_sum(best_adamw(), tensors, numbers, read, wrote);
  auto* out = sums->mutable_data_ptr<std::int64_t>();
  for (const AdamWSums& of : {read, wrote})
    for (const std::uint64_t sum : {of.param, of.exp_avg, of.exp_avg_sq}) *out++ = static_cast<std::int64_t>(sum);
  return true;
}

std::int64_t sum_of_bits(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(adamw_sum(best_adamw(), tensor));
}

}  // namespace

void register_row_operators(torch::Library& library) {
  library.impl("rms_norm", rms_norm);
  library.impl("add_rms_norm", add_rms_norm);
  library.impl("rms_norm_backward", rms_norm_gradients);
  library.impl("rotate", rotated);
  library.impl("rotate_halves", halves_rotated);
  library.impl("swiglu", swiglu);
  library.impl("swiglu_backward", swiglu_gradients);
  library.impl("linear_of_few_rows", few_rows);
  library.impl("cross_entropy", cross_entropy);
  library.impl("softmax_stats", stats_of_part);
  library.impl("cross_entropy_backward", cross_entropy_gradient);
  library.impl("adamw", adamw_step);
  library.impl("adamw_sum", sum_of_bits);
}

}  // namespace titan::kernels
