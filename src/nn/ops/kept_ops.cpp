#include "nn/ops/kept_ops.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "kernels/operators.h"
#include "nn/ops/meta_run.h"
#include "nn/ops/op_trace.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Returns the output detached from the graph of the node that made it.
at::Tensor without_graph(const at::Tensor& tensor) { return tensor.detach(); }

// Saves for backward: `inputs`, then the tensors that the operator kept.
void save_with_kept(AutogradContext* context, variable_list inputs, const KeptTensors& kept) {
  inputs.insert(inputs.end(), kept.tensors.begin(), kept.tensors.end());
  context->save_for_backward(std::move(inputs));
}

// The node of y = x W^T for an existing y. Its backward runs the same matmuls as ATen's.
struct KeptLinear : torch::autograd::Function<KeptLinear> {
  static Variable forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                          const KeptTensors& kept) {
    context->save_for_backward({x, weight});
    return without_graph(kept.tensors[0]);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    const auto grad = grad_outputs[0].reshape({-1, weight.size(0)});  // [rows, out]
    variable_list grads(3);                                           // the last is for `kept`
    if (context->needs_input_grad(0)) grads[0] = grad.mm(weight).view(x.sizes());
    if (context->needs_input_grad(1)) grads[1] = grad.t().mm(x.reshape({-1, weight.size(1)}));
    return grads;
  }
};

// Returns the kernel that scaled_dot_product_attention chooses. attend() calls it in the same way. Kept: output, log of
// the softmax's sums, and on CUDA seed and offset of the (unused) dropout.
at::SDPBackend backend_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (q.is_meta()) return at::SDPBackend::flash_attention;
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                           /*is_causal=*/true, /*scale=*/{}, q.size(1) != k.size(1)));
}

// True if the CPU's kernel runs: on CPU, and on the meta device (nn/ops/meta_kernels.h).
bool runs_on_host(const at::Tensor& q) { return q.is_cpu() || q.is_meta(); }

bool is_keepable(at::SDPBackend backend, const at::Tensor& q) {
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

double scale_of(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(-1))); }

variable_list attend(at::SDPBackend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (backend == at::SDPBackend::efficient_attention) {
    auto [out, sums, seed, offset] = at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, true);
    return {out, sums, seed, offset};
  }
  if (backend == at::SDPBackend::cudnn_attention) {
    const auto result = at::_scaled_dot_product_cudnn_attention(q, k, v, {}, true, 0.0, true, false);
    return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
  }
  if (runs_on_host(q)) {
    auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true);
    return {out, sums, at::Tensor(), at::Tensor()};
  }
  const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, true, false, scale_of(q));
  return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
}

struct KeptAttention : torch::autograd::Function<KeptAttention> {
  static Variable forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const KeptTensors& kept) {
    save_with_kept(context, {q, k, v}, kept);
    context->saved_data["backend"] = kept.kernel;
    return without_graph(kept.tensors[0]);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto saved = context->get_saved_variables();
    const auto &grad = grad_outputs[0], &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &sums = saved[4],
               &seed = saved[5], &offset = saved[6];
    const at::Tensor none;
    std::tuple<at::Tensor, at::Tensor, at::Tensor> grads;
    switch (static_cast<at::SDPBackend>(context->saved_data["backend"].toInt())) {
      case at::SDPBackend::efficient_attention: {
        const std::array<bool, 4> wanted = {context->needs_input_grad(0), context->needs_input_grad(1),
                                            context->needs_input_grad(2), false};
        const auto all = at::_scaled_dot_product_efficient_attention_backward(grad, q, k, v, none, out, sums, seed,
                                                                              offset, 0.0, wanted, true);
        grads = {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
        break;
      }
      case at::SDPBackend::cudnn_attention:
        grads = at::_scaled_dot_product_cudnn_attention_backward(grad, q, k, v, out, sums, seed, offset, none, none,
                                                                 none, q.size(2), k.size(2), 0.0, true);
        break;
      default:
        grads = runs_on_host(q)
                    ? at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, sums, 0.0, true)
                    : at::_scaled_dot_product_flash_attention_backward(grad, q, k, v, out, sums, none, none, q.size(2),
                                                                       k.size(2), 0.0, true, seed, offset, scale_of(q));
    }
    return {std::get<0>(grads), std::get<1>(grads), std::get<2>(grads), at::Tensor()};
  }
};

// Returns the tensors to keep: output, log of the softmax's sums, and seed and offset of the (unused) dropout.
variable_list attend_within(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Documents& documents) {
  const auto& [bounds, longest] = documents;
  const auto result = at::_flash_attention_forward(q, k, v, bounds, bounds, longest, longest, /*dropout_p=*/0.0,
                                                   /*is_causal=*/true, /*return_debug_mask=*/false, scale_of(q));
  return {std::get<0>(result), std::get<1>(result), std::get<2>(result), std::get<3>(result)};
}

struct KeptDocumentAttention : torch::autograd::Function<KeptDocumentAttention> {
  static Variable forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const Documents& documents, const KeptTensors& kept) {
    save_with_kept(context, {q, k, v, documents.bounds}, kept);
    context->saved_data["longest"] = documents.longest;
    return without_graph(kept.tensors[0]);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto saved = context->get_saved_variables();
    const auto &q = saved[0], &k = saved[1], &v = saved[2], &bounds = saved[3];
    const auto longest = context->saved_data["longest"].toInt();
    auto [of_q, of_k, of_v] =
        at::_flash_attention_backward(grad_outputs[0], q, k, v, /*out=*/saved[4], /*logsumexp=*/saved[5], bounds,
                                      bounds, longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true,
                                      /*rng_state=*/saved[6], /*unused=*/saved[7], scale_of(q));
    return {of_q, of_k, of_v, at::Tensor(), at::Tensor()};
  }
};

// Runs an operator under a trace. `compute` returns its output; `keep` returns what its gradient needs, the output
// first; `restore` turns these into the output with its node.
template <typename Compute, typename Keep, typename Restore>
at::Tensor run_traced(OpTrace& trace, const Op& op, bool keepable, Compute compute, Keep keep, Restore restore) {
  at::Tensor out;
  switch (trace.begin(op, keepable)) {
    case OpTrace::Action::kTake:
      out = restore(trace.take());
      break;
    case OpTrace::Action::kComputeAndKeep: {
      KeptTensors kept = keep();
      out = kept.tensors[0];
      trace.keep(std::move(kept));
      break;
    }
    case OpTrace::Action::kCompute:
      out = compute();
  }
  trace.end(out);
  return out;
}

}  // namespace

namespace {

// True on a GPU if no fused kernel takes grouped queries: in float32, which flash and cuDNN do not take, or if the user
// allows only ATen's efficient one. That one needs as many key heads as query heads. Without it only the formula is
// left, which keeps scores of T x T elements for backward.
bool needs_a_key_for_each_query(const at::Tensor& q, const at::Tensor& k) {
  const bool is_on_gpu = q.is_meta() ? meta_run::stands_for_gpu() : !q.is_cpu();
  const auto& context = at::globalContext();
  if (!is_on_gpu || q.size(1) == k.size(1) || !context.userEnabledMemEfficientSDP()) return false;
  return q.scalar_type() == at::kFloat || (!context.userEnabledFlashSDP() && !context.userEnabledCuDNNSDP());
}

// [B, K, T, E] -> [B, heads, T, E]: head h is head h / (heads / K) of `x`.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads) {
  const auto B = x.size(0), K = x.size(1), T = x.size(2), E = x.size(3);
  return x.unsqueeze(2).expand({B, K, heads / K, T, E}).reshape({B, heads, T, E});
}

}  // namespace

at::Tensor apply_linear(const at::Tensor& x, const at::Tensor& weight) {
  const auto compute = [&] {
    if (!at::GradMode::is_enabled())
      if (at::Tensor out = ops::linear_of_few_rows(x, weight); out.defined()) return out;
    return at::linear(x, weight);
  };
  auto* trace = OpTrace::current();
  if (!trace) return compute();
  return run_traced(
      *trace, {OpKind::kLinear, weight.sizes()}, /*keepable=*/true, compute, [&] { return KeptTensors{{compute()}}; },
      [&](const KeptTensors& kept) { return KeptLinear::apply(x, weight, kept); });
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values) {
  const bool repeats = needs_a_key_for_each_query(q, keys);
  const auto k = repeats ? repeat_heads(keys, q.size(1)) : keys, v = repeats ? repeat_heads(values, q.size(1)) : values;
  const auto compute = [&] {
    // On the meta device ATen would choose the formula, whose memory grows with the square of the length.
    if (q.is_meta()) return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true));
    return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true,
                                            /*scale=*/{}, /*enable_gqa=*/q.size(1) != k.size(1));
  };
  auto* trace = OpTrace::current();
  if (!trace) return compute();
  const auto backend = backend_of(q, k, v);
  return run_traced(
      *trace, {OpKind::kAttention}, is_keepable(backend, q), compute,
      [&] {
        return KeptTensors{attend(backend, q, k, v), static_cast<std::int64_t>(backend)};
      },
      [&](const KeptTensors& kept) { return KeptAttention::apply(q, k, v, kept); });
}

bool attends_within_documents(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto dtype = q.scalar_type();
  if (runs_on_host(q) || (dtype != at::kHalf && dtype != at::kBFloat16) || q.size(-1) % 8 != 0) return false;
  const auto& context = at::globalContext();
  // Documents need flash attention's kernel. Users who chose cuDNN get it too: cuDNN's kernel takes one length at a
  // time, each with a plan of its own.
  if (!context.userEnabledFlashSDP() && !context.userEnabledCuDNNSDP()) return false;
  // If flash attention or cuDNN takes one row of all tokens, flash attention takes documents: cuDNN needs what flash
  // needs.
  const auto as_batch = [](const at::Tensor& heads) { return heads.transpose(0, 1).unsqueeze(0); };
  const auto backend = backend_of(as_batch(q), as_batch(k), as_batch(v));
  return backend == at::SDPBackend::flash_attention || backend == at::SDPBackend::cudnn_attention;
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Documents& documents) {
  const auto attend = [&] { return attend_within(q, k, v, documents); };
  auto* trace = OpTrace::current();
  if (!trace) return attend().front();
  return run_traced(
      *trace, {OpKind::kAttention}, /*keepable=*/true, [&] { return attend().front(); },
      [&] { return KeptTensors{attend()}; },
      [&](const KeptTensors& kept) { return KeptDocumentAttention::apply(q, k, v, documents, kept); });
}

}  // namespace titan::nn
