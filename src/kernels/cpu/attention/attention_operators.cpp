#include "kernels/cpu/attention/attention_operators.h"

#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "kernels/cpu/attention/attention_kernel.h"

namespace titan::kernels {
namespace {

double scale_of(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(-1))); }

std::tuple<at::Tensor, at::Tensor> attend_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               std::int64_t offset) {
  if (!takes(best_attention(), q, k, v)) return {};
  return attention_forward(best_attention(), q, k, v, scale_of(q), offset);
}

// Keys and values of the backward may have other strides than those of the forward: they are checked again.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_part_gradients(const at::Tensor& out_grad, const at::Tensor& q,
                                                                     const at::Tensor& k, const at::Tensor& v,
                                                                     const at::Tensor& out, const at::Tensor& sums,
                                                                     std::int64_t offset) {
  if (!takes(best_attention(), q, k, v)) return {};
  return attention_backward(best_attention(), out_grad, q, k, v, out, sums, scale_of(q), offset);
}

}  // namespace

void register_attention_operators(torch::Library& library) {
  library.impl("attend_part", attend_part);
  library.impl("attend_part_backward", attend_part_gradients);
}

}  // namespace titan::kernels
