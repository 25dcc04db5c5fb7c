#include "nn/checkpointed.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"

namespace titan::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// torch.utils.checkpoint's reentrant form: forward without a graph, and a graph of its own in backward.
struct Recompute : torch::autograd::Function<Recompute> {
  static Variable forward(AutogradContext* context, const Module::Forward& forward, at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["forward"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(forward));
    return forward(inputs.vec());  // Function::apply runs this with gradients off
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    variable_list inputs;
    for (const auto& saved : context->get_saved_variables()) {
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    }
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["forward"].toCapsule());
    at::Tensor output;
    {
      const at::AutoGradMode with_graph(true);
      output = holder->forward(inputs);
    }
    torch::autograd::backward({output}, {grad_outputs[0]});
    variable_list grads(1);  // the callable has no gradient
    for (const auto& input : inputs) grads.push_back(input.grad());
    return grads;
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(Module::Forward f) : forward(std::move(f)) {}
    Module::Forward forward;
  };
};

}  // namespace

void checkpoint_activations(Module& module) {
  module.set_forward_wrapper([](const Module::Forward& forward, const Tensors& inputs) -> at::Tensor {
    bool any_grad = false;
    for (const auto& input : inputs) any_grad |= input.requires_grad();
    // Without a graph through the inputs nothing would call backward: parameters alone do not reach the function's
    // node.
    if (!at::GradMode::is_enabled() || !any_grad) return forward(inputs);
    return Recompute::apply(forward, at::TensorList(inputs));
  });
}

}  // namespace titan::nn
