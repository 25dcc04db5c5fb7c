#include "nn/ops/kept_ops.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/operators.h"
#include "nn/ops/fused_attention.h"
#include "nn/ops/op_trace.h"
#include "nn/ops/traced_op.h"
#include "nn/ops/weight_gradients.h"

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
    if (!context->needs_input_grad(1)) return grads;
    const auto rows = x.reshape({-1, weight.size(1)});
    if (auto* const later = WeightGradients::current()) {
      later->add(weight, rows, grad);
    } else {
      grads[1] = grad.t().mm(rows);
    }
    return grads;
  }
};

// Returns the tensors to keep: output, log of the softmax's sums, and on CUDA seed and offset of the (unused) dropout.
variable_list attend_causally(at::SDPBackend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  auto [out, sums, seed, offset] = attend(backend, q, k, v, /*is_causal=*/true, attention_scale(q));
  return {out, sums, seed, offset};
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
    const auto& q = saved[0];
    auto [of_q, of_k, of_v] = attend_backward(
        static_cast<at::SDPBackend>(context->saved_data["backend"].toInt()), grad_outputs[0], q, /*k=*/saved[1],
        /*v=*/saved[2], {saved[3], saved[4], saved[5], saved[6]}, /*is_causal=*/true, attention_scale(q),
        {context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)});
    return {of_q, of_k, of_v, at::Tensor()};
  }
};

// Returns the tensors to keep: output, log of the softmax's sums, and seed and offset of the (unused) dropout.
variable_list attend_within(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Documents& documents) {
  const auto& [bounds, longest] = documents;
  const auto result = at::_flash_attention_forward(q, k, v, bounds, bounds, longest, longest, /*dropout_p=*/0.0,
                                                   /*is_causal=*/true, /*return_debug_mask=*/false, attention_scale(q));
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
                                      /*rng_state=*/saved[6], /*unused=*/saved[7], attention_scale(q));
    return {of_q, of_k, of_v, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor apply_linear(const at::Tensor& x, const at::Tensor& weight) {
  const auto compute = [&] {
    if (!at::GradMode::is_enabled())
      if (at::Tensor out = ops::linear_of_few_rows(x, weight); out.defined()) return out;
    return at::linear(x, weight);
  };
  const auto compute_with_node = [&] {
    if (!uses_own_linear_node() || !at::GradMode::is_enabled()) return compute();
    const auto product = [&] {
      const at::NoGradGuard no_grad;
      return at::linear(x, weight);
    };
    return at::Tensor(KeptLinear::apply(x, weight, KeptTensors{{product()}}));
  };
  auto* trace = OpTrace::current();
  if (!trace) return compute_with_node();
  return run_traced(
      *trace, {OpKind::kLinear, weight.sizes()}, /*keepable=*/true, compute_with_node,
      [&] { return KeptTensors{{compute()}}; },
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
  const auto backend = attention_backend(q, k, v, /*is_causal=*/true);
  return run_traced(
      *trace, {OpKind::kAttention}, is_fused(backend, q), compute,
      [&] {
        return KeptTensors{attend_causally(backend, q, k, v), static_cast<std::int64_t>(backend)};
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
  const auto backend = attention_backend(as_batch(q), as_batch(k), as_batch(v), /*is_causal=*/true);
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
