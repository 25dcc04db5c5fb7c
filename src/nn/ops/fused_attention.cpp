#include "nn/ops/fused_attention.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>

#include "nn/ops/meta_run.h"

namespace titan::nn {

bool runs_on_host(const at::Tensor& q) { return q.is_cpu() || q.is_meta(); }

at::SDPBackend attention_backend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal) {
  if (q.is_meta()) return at::SDPBackend::flash_attention;
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, is_causal,
                                                           /*scale=*/{}, q.size(1) != k.size(1)));
}

bool is_fused(at::SDPBackend backend, const at::Tensor& q) {
  switch (backend) {
    case at::SDPBackend::flash_attention:
      return runs_on_host(q) || q.size(-1) % 8 == 0;  // ATen pads other head dims around the kernel
    case at::SDPBackend::efficient_attention:
    case at::SDPBackend::cudnn_attention:
      return true;
    default:
      return false;
  }
}

bool needs_a_key_for_each_query(const at::Tensor& q, const at::Tensor& k) {
  const bool is_on_gpu = q.is_meta() ? meta_run::stands_for_gpu() : !q.is_cpu();
  const auto& context = at::globalContext();
  if (!is_on_gpu || q.size(1) == k.size(1) || !context.userEnabledMemEfficientSDP()) return false;
  return q.scalar_type() == at::kFloat || (!context.userEnabledFlashSDP() && !context.userEnabledCuDNNSDP());
}

at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads) {
  const auto B = x.size(0), K = x.size(1), S = x.size(2), E = x.size(3);
  return x.unsqueeze(2).expand({B, K, heads / K, S, E}).reshape({B, heads, S, E});
}

AttentionWithoutPlans::AttentionWithoutPlans(at::Device device) : is_on_gpu_(!device.is_cpu() && !device.is_meta()) {
  if (!is_on_gpu_) return;
  // A choice of cuDNN alone leaves nothing else.
  const bool any = !before_.flash && !before_.efficient && !before_.math;
  set({.cudnn = false, .flash = any || before_.flash, .efficient = any || before_.efficient, .math = true});
}

AttentionWithoutPlans::~AttentionWithoutPlans() {
  if (is_on_gpu_) set(before_);
}

AttentionWithoutPlans::Choice AttentionWithoutPlans::current() {
  const auto& context = at::globalContext();
  return {context.userEnabledCuDNNSDP(), context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
          context.userEnabledMathSDP()};
}

void AttentionWithoutPlans::set(const Choice& choice) {
  auto& context = at::globalContext();
  context.setSDPUseCuDNN(choice.cudnn);
  context.setSDPUseFlash(choice.flash);
  context.setSDPUseMemEfficient(choice.efficient);
  context.setSDPUseMath(choice.math);
}

double attention_scale(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(-1))); }

FusedAttention attend(at::SDPBackend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      bool is_causal, double scale) {
  if (backend == at::SDPBackend::efficient_attention) {
    const auto [out, sums, seed, offset] =
        at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, is_causal, scale);
    return {out, sums, seed, offset};
  }
  if (backend == at::SDPBackend::cudnn_attention) {
    const auto result = at::_scaled_dot_product_cudnn_attention(q, k, v, {}, true, 0.0, is_causal, false, scale);
    return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
  }
  if (runs_on_host(q)) {
    const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal, {}, scale);
    return {out, sums, at::Tensor(), at::Tensor()};
  }
  const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal, false, scale);
  return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_backward(at::SDPBackend backend, const at::Tensor& grad,
                                                               const at::Tensor& q, const at::Tensor& k,
                                                               const at::Tensor& v, const FusedAttention& forward,
                                                               bool is_causal, double scale,
                                                               const std::array<bool, 3>& wanted) {
  const auto& [out, sums, seed, offset] = forward;
  const at::Tensor none;
  if (backend == at::SDPBackend::efficient_attention) {
    const auto all = at::_scaled_dot_product_efficient_attention_backward(
        grad, q, k, v, none, out, sums, seed, offset, 0.0, {wanted[0], wanted[1], wanted[2], false}, is_causal, scale);
    return {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
  }
  if (backend == at::SDPBackend::cudnn_attention)
    return at::_scaled_dot_product_cudnn_attention_backward(grad, q, k, v, out, sums, seed, offset, none, none, none,
                                                            q.size(2), k.size(2), 0.0, is_causal, scale);
  if (runs_on_host(q))
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, sums, 0.0, is_causal, {},
                                                                    scale);
  return at::_scaled_dot_product_flash_attention_backward(grad, q, k, v, out, sums, none, none, q.size(2), k.size(2),
                                                          0.0, is_causal, seed, offset, scale);
}

}  // namespace titan::nn
