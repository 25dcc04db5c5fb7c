#include "nn/ops/fused_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "base/error.h"
#include "kernels/cpu/rows/fused_kernels.h"
#include "kernels/operators.h"
#include "nn/ops/meta_run.h"
#include "nn/ops/once_differentiable.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Carries a result into a node's forward. A tensor would be taken for an input of the node.
struct Result {
  at::Tensor out;
};

void check_has_kernel(const at::Tensor& gradient) {
  TITAN_CHECK(gradient.defined(), "the kernels of a forward are gone in its backward");
}

// True if a meta tensor stands for one on a GPU. ATen's RMSNorm there saves for backward what this program's CPU kernel
// saves, in every dtype; on the meta device ATen has only the composed operators, which save float32 copies.
bool plays_fused_rms_norm(const at::Tensor& x) { return x.is_meta() && meta_run::stands_for_gpu(); }

ops::Tensors2 rms_norm_results(const at::Tensor& x, const at::Tensor& weight, double eps) {
  auto results = ops::rms_norm(x, weight, eps);
  if (std::get<0>(results).defined() || !plays_fused_rms_norm(x)) return results;
  return kernels::rms_norm_forward(kernels::best_fused_kernels(), x, weight, eps);
}

ops::Tensors2 rms_norm_gradients(const at::Tensor& out_grad, const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& rrms, const at::Tensor& more) {
  if (plays_fused_rms_norm(x))
    return kernels::rms_norm_backward(kernels::best_fused_kernels(), out_grad, x, weight, rrms, more);
  auto gradients = ops::rms_norm_backward(out_grad, x, weight, rrms, more);
  check_has_kernel(std::get<0>(gradients));
  return gradients;
}

// Each node is made for results that the forward operator has returned already: only then is it known that there is a
// kernel. Its backward operator has one, too.

struct FusedRmsNorm : torch::autograd::Function<FusedRmsNorm> {
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                          const ops::Tensors2& results) {
    const auto& [out, rrms] = results;
    context->save_for_backward({x, weight, rrms});
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("RMSNorm");
    const auto saved = context->get_saved_variables();
    const auto [x, weight] = rms_norm_gradients(grad_outputs[0], saved[0], saved[1], saved[2], /*more=*/{});
    return {x, weight, at::Tensor()};
  }
};

struct FusedAddRmsNorm : torch::autograd::Function<FusedAddRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& /*x*/, const at::Tensor& /*delta*/,
                               const at::Tensor& weight, const ops::Tensors3& results) {
    const auto& [sum, normed, rrms] = results;
    context->save_for_backward({sum, weight, rrms});
    context->set_materialize_grads(false);  // an unused output has an undefined gradient instead of zeros
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("RMSNorm");
    const auto &sum_grad = grad_outputs[0], &normed_grad = grad_outputs[1];
    if (!normed_grad.defined()) return {sum_grad, sum_grad, at::Tensor(), at::Tensor()};
    const auto saved = context->get_saved_variables();
    const auto [x, weight] = rms_norm_gradients(normed_grad, saved[0], saved[1], saved[2], sum_grad);
    return {x, x, weight, at::Tensor()};
  }
};

// `kRotate`: ops::rotate or ops::rotate_halves.
template <decltype(ops::rotate)& kRotate>
struct FusedRotaryEmbedding : torch::autograd::Function<FusedRotaryEmbedding<kRotate>> {
  static Variable forward(AutogradContext* context, const at::Tensor& /*x*/, const at::Tensor& freqs_cis,
                          const Result& result) {
    context->save_for_backward({freqs_cis});
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("the rotary embedding");
    const auto grad = kRotate(grad_outputs[0], context->get_saved_variables()[0], /*conjugate=*/true);
    check_has_kernel(grad);
    return {grad, at::Tensor(), at::Tensor()};
  }
};

struct FusedSwiglu : torch::autograd::Function<FusedSwiglu> {
  static Variable forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                          const Result& result) {
    context->save_for_backward({gate, up});
    return result.out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    check_once_differentiable("SwiGLU");
    const auto saved = context->get_saved_variables();
    const auto [gate, up] = ops::swiglu_backward(grad_outputs[0], saved[0], saved[1]);
    check_has_kernel(gate);
    return {gate, up, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const auto results = rms_norm_results(x, weight, eps);
  if (!std::get<0>(results).defined()) return composed::rms_norm(x, weight, eps);
  return FusedRmsNorm::apply(x, weight, results);
}

NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  const auto results = ops::add_rms_norm(x, delta, weight, eps);
  if (!std::get<0>(results).defined()) {
    const auto sum = x + delta;
    return {sum, rms_norm(sum, weight, eps)};  // the sum may be fused even if an addend's strides are not taken
  }
  const auto outputs = FusedAddRmsNorm::apply(x, delta, weight, results);
  return {outputs[0], outputs[1]};
}

at::Tensor apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis) {
  const auto out = freqs_cis.requires_grad() ? at::Tensor() : ops::rotate(x, freqs_cis, /*conjugate=*/false);
  if (!out.defined()) return composed::apply_rotary_emb(x, freqs_cis);
  return FusedRotaryEmbedding<ops::rotate>::apply(x, freqs_cis, Result{out});
}

at::Tensor apply_rotary_emb_halves(const at::Tensor& x, const at::Tensor& freqs_cis) {
  const auto out = freqs_cis.requires_grad() ? at::Tensor() : ops::rotate_halves(x, freqs_cis, /*conjugate=*/false);
  if (!out.defined()) return composed::apply_rotary_emb_halves(x, freqs_cis);
  return FusedRotaryEmbedding<ops::rotate_halves>::apply(x, freqs_cis, Result{out});
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const auto out = ops::swiglu(gate, up);
  if (!out.defined()) return composed::swiglu(gate, up);
  return FusedSwiglu::apply(gate, up, Result{out});
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

at::Tensor composed::apply_rotary_emb_halves(const at::Tensor& x, const at::Tensor& freqs_cis) {
  const auto factors = at::view_as_real(freqs_cis.slice(0, 0, x.size(1)).unsqueeze(1)).to(x.scalar_type());
  const auto cos = factors.select(-1, 0), sin = factors.select(-1, 1);  // [T, 1, head_dim / 2]
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor composed::swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

}  // namespace titan::nn
