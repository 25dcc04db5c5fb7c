#include "nn/checkpointed.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "nn/random/random_state.h"
#include "trace/named_range.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// One call of a checkpointed module, kept until its backward.
struct Call : torch::CustomClassHolder {
  Call(Module::Forward f, const CheckpointOptions& o)
      : forward(std::move(f)), options(o), trace(o.policy ? o.policy() : KeepPolicy()) {}
  Module::Forward forward;
  CheckpointOptions options;
  OpTrace trace;
  RandomState random_state;
};

// torch.utils.checkpoint's reentrant form: forward without a graph, and a graph of its own in backward.
struct Recompute : torch::autograd::Function<Recompute> {
  static Variable forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call, at::TensorList inputs) {
    if (call->options.preserve_rng_state) call->random_state = RandomState::of(inputs.vec());
    at::Tensor output;
    {
      const OpTrace::Scope scope(call->trace);
      output = call->forward(inputs.vec());  // Function::apply runs this with gradients off
    }
    call->trace.module_output(output);
    // Kept tensors are saved in the node, which frees them after its backward and detects in-place writes to them.
    variable_list saved = inputs.vec();
    const auto kept = call->trace.release_kept();
    saved.insert(saved.end(), kept.begin(), kept.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["num_inputs"] = static_cast<std::int64_t>(inputs.size());
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    auto saved = context->get_saved_variables();
    const auto num_inputs = context->saved_data["num_inputs"].toInt();
    variable_list inputs;
    for (std::int64_t i = 0; i < num_inputs; ++i)
      inputs.push_back(saved[i].detach().set_requires_grad(saved[i].requires_grad()));
    const auto call = c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    auto output = recompute(*call, inputs, {saved.begin() + num_inputs, saved.end()});
    saved.clear();
    torch::autograd::backward({output}, {grad_outputs[0]});
    variable_list grads(1);  // the call has no gradient
    for (const auto& input : inputs) grads.push_back(input.grad());
    return grads;
  }

 private:
  static at::Tensor recompute(Call& call, const variable_list& inputs, variable_list kept) {
    const NamedRange range([] { return "recompute"; });
    const RandomStateGuard same_numbers(call.random_state);
    const at::AutoGradMode with_graph(true);
    const OpTrace::Scope scope(call.trace);
    call.trace.start_recomputation(std::move(kept), call.options.determinism_check, call.options.debug);
    auto output = call.forward(inputs);
    call.trace.finish_recomputation();
    call.trace.module_output(output);
    return output;
  }
};

}  // namespace

void checkpoint_activations(Module& module, CheckpointOptions options) {
  module.add_forward_wrapper(
      [options = std::move(options)](const Module::Forward& forward, const Tensors& inputs) -> at::Tensor {
        bool any_grad = false;
        for (const auto& input : inputs) any_grad |= input.requires_grad();
        // Without a graph through the inputs nothing would call backward: parameters alone do not connect to the
        // function's node.
        if (!at::GradMode::is_enabled() || !any_grad || OpTrace::current()) return forward(inputs);
        return Recompute::apply(c10::make_intrusive<Call>(forward, options), at::TensorList(inputs));
      });
}

KeepPolicy keep_every_second_linear(std::vector<std::vector<std::int64_t>> always_recomputed) {
  return [always_recomputed = std::move(always_recomputed), count = 0](const Op& op) mutable {
    if (op.kind == OpKind::kAttention) return true;
    const bool excluded = std::any_of(always_recomputed.begin(), always_recomputed.end(),
                                      [&](const auto& shape) { return op.weight_shape.equals(shape); });
    if (excluded) return false;
    return ++count % 2 == 1;
  };
}

}  // namespace titan::nn
