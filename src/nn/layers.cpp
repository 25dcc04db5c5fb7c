#include "nn/layers.h"

#include <ATen/ATen.h>

#include "nn/ops/kept_ops.h"

namespace titan::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, bool has_bias) {
  param("weight", weight, {out_features, in_features});
  if (has_bias) param("bias", bias, {out_features});
}
at::Tensor Linear::forward(const Tensors& inputs) { return add_bias(apply_linear(inputs[0], weight)); }
at::Tensor Linear::add_bias(const at::Tensor& product) const { return bias.defined() ? product + bias : product; }

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t dim) { param("weight", weight, {num_embeddings, dim}); }
at::Tensor Embedding::forward(const Tensors& inputs) { return at::embedding(weight, inputs[0]); }

RMSNorm::RMSNorm(std::int64_t dim, double eps) : eps_(eps) { param("weight", weight, {dim}); }
at::Tensor RMSNorm::forward(const Tensors& inputs) { return rms_norm(inputs[0], weight, eps_); }
NormedSum RMSNorm::forward_add(const at::Tensor& x, const at::Tensor& delta) {
  if (has_post_hooks_or_wrappers()) {
    const auto sum = x + delta;
    return {sum, (*this)(sum)};
  }
  Tensors inputs = {x, delta};
  run_pre_hooks(inputs);
  return add_rms_norm(inputs[0], inputs[1], weight, eps_);
}

}  // namespace titan::nn
