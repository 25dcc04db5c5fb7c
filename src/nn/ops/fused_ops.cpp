#include "nn/ops/fused_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "kernels/fused.h"
#include "nn/ops/meta_run.h"
#include "nn/ops/once_differentiable.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Returns the fused operators that forward took on x's device.
const kernels::FusedOps& ops_of(const at::Tensor& x) {
  if (x.is_cpu() || x.is_meta()) return kernels::cpu_fused_ops();
  const auto* const ops = kernels::fused_ops_for(x);
  TITAN_CHECK(ops, "the kernels of a forward are gone in its backward");
  return *ops;
}

struct FusedRmsNorm : torch::autograd::Function<FusedRmsNorm> {
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps) {
    const auto [out, rrms] = ops_of(x).rms_norm_forward(x, weight, eps);
    context->save_for_backward({x, weight, rrms});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("RMSNorm");
    const auto saved = context->get_saved_variables();
    const auto [x, weight] =
        ops_of(saved[0]).rms_norm_backward(grad_outputs[0], saved[0], saved[1], saved[2], /*more=*/{});
    return {x, weight, at::Tensor()};
  }
};

struct FusedAddRmsNorm : torch::autograd::Function<FusedAddRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& delta,
                               const at::Tensor& weight, double eps) {
    const auto [sum, normed, rrms] = ops_of(x).add_rms_norm_forward(x, delta, weight, eps);
    context->save_for_backward({sum, weight, rrms});
    context->set_materialize_grads(false);  // an unused output has an undefined gradient instead of zeros
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("RMSNorm");
    const auto &sum_grad = grad_outputs[0], &normed_grad = grad_outputs[1];
    if (!normed_grad.defined()) return {sum_grad, sum_grad, at::Tensor(), at::Tensor()};
    const auto saved = context->get_saved_variables();
    const auto [x, weight] = ops_of(saved[0]).rms_norm_backward(normed_grad, saved[0], saved[1], saved[2], sum_grad);
    return {x, x, weight, at::Tensor()};
  }
};

struct FusedRotaryEmbedding : torch::autograd::Function<FusedRotaryEmbedding> {
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& freqs_cis) {
    context->save_for_backward({freqs_cis});
    return ops_of(x).rotate(x, freqs_cis, /*conjugate=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("the rotary embedding");
    const auto saved = context->get_saved_variables();
    return {ops_of(saved[0]).rotate(grad_outputs[0], saved[0], /*conjugate=*/true), at::Tensor()};
  }
};

struct FusedSwiglu : torch::autograd::Function<FusedSwiglu> {
  static Variable forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return ops_of(gate).swiglu_forward(gate, up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("SwiGLU");
    const auto saved = context->get_saved_variables();
    const auto [gate, up] = ops_of(saved[0]).swiglu_backward(grad_outputs[0], saved[0], saved[1]);
    return {gate, up};
  }
};

// True if a meta tensor stands for one on a GPU. ATen's kernel there saves for backward what this program's CPU kernel
// saves, in every dtype; on the meta device ATen has only the composed operators, which save float32 copies.
bool plays_fused_rms_norm(const at::Tensor& x) { return x.is_meta() && meta_run::stands_for_gpu(); }

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const auto* const ops = kernels::fused_ops_for(x);
  const bool is_fused = plays_fused_rms_norm(x) || (ops && ops->takes_rms_norm(x, weight));
  if (!is_fused) return composed::rms_norm(x, weight, eps);
  return FusedRmsNorm::apply(x, weight, eps);
}

NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  const auto* const ops = kernels::fused_ops_for(x);
  if (!ops || !ops->takes_add_rms_norm(x, delta, weight)) {
    const auto sum = x + delta;
    return {sum, rms_norm(sum, weight, eps)};  // the sum may be fused even if an addend's strides are not taken
  }
  const auto outputs = FusedAddRmsNorm::apply(x, delta, weight, eps);
  return {outputs[0], outputs[1]};
}

at::Tensor apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis) {
  const auto* const ops = kernels::fused_ops_for(x);
  if (!ops || !ops->takes_rotation(x, freqs_cis) || freqs_cis.requires_grad())
    return composed::apply_rotary_emb(x, freqs_cis);
  return FusedRotaryEmbedding::apply(x, freqs_cis);
}

at::Tensor apply_rotary_emb_halves(const at::Tensor& x, const at::Tensor& freqs_cis) {
  const auto factors = at::view_as_real(freqs_cis.slice(0, 0, x.size(1)).unsqueeze(1)).to(x.scalar_type());
  const auto cos = factors.select(-1, 0), sin = factors.select(-1, 1);  // [T, 1, head_dim / 2]
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const auto* const ops = kernels::fused_ops_for(gate);
  if (!ops || !ops->takes_swiglu(gate, up)) return composed::swiglu(gate, up);
  return FusedSwiglu::apply(gate, up);
}

at::Tensor composed::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return at::rms_norm(x, weight.sizes(), weight, eps);
}

NormedSum composed::add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  const auto sum = x + delta;
  return {sum, composed::rms_norm(sum, weight, eps)};
}

at::Tensor composed::apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis) {
  const auto seq_len = x.size(1);
  const auto pairs = at::view_as_complex(x.to(at::kFloat).reshape({x.size(0), seq_len, x.size(2), -1, 2}));
  const auto table = freqs_cis.slice(0, 0, seq_len).view({1, seq_len, 1, pairs.size(3)});
  return at::view_as_real(pairs * table).flatten(3).to(x.scalar_type());
}

at::Tensor composed::swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

}  // namespace titan::nn
