#include "nn/ops/meta_kernels.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace titan::nn {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  auto sizes = self.sizes().vec();
  sizes.at(static_cast<std::size_t>(dim)) = index.numel();
  return at::empty(sizes, self.options());
}

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& /*indices*/, std::int64_t num_weights,
                                    std::int64_t /*padding_idx*/, bool /*scale_grad_by_freq*/) {
  return at::empty({num_weights, grad.size(-1)}, grad.options());
}

// Returns the output [B, H, T, E] and the logarithm of the softmax's sums [B, H, T].
std::tuple<at::Tensor, at::Tensor> flash_attention(const at::Tensor& q, const at::Tensor& /*k*/,
                                                   const at::Tensor& /*v*/, double /*dropout_p*/, bool /*is_causal*/,
                                                   const OptionalTensor& /*attn_mask*/,
                                                   std::optional<double> /*scale*/) {
  return {at::empty_like(q), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& /*grad*/, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& /*out*/, const at::Tensor& /*sums*/, double /*dropout_p*/, bool /*is_causal*/,
    const OptionalTensor& /*attn_mask*/, std::optional<double> /*scale*/) {
  return {at::empty_like(q), at::empty_like(k), at::empty_like(v)};
}

}  // namespace

void register_meta_kernels() {
  // Never unregistered: tensors may outlive any scope. "used" keeps the pointer, or leak checkers would report it.
  [[gnu::used]] static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    made->impl("index_select", index_select);
    made->impl("embedding_dense_backward", embedding_dense_backward);
    made->impl("_scaled_dot_product_flash_attention_for_cpu", flash_attention);
    made->impl("_scaled_dot_product_flash_attention_for_cpu_backward", flash_attention_backward);
    return made;
  }();
}

}  // namespace titan::nn
