#include "train/loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "base/error.h"
#include "kernels/choice.h"
#include "kernels/cross_entropy.h"

namespace titan::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct CrossEntropySum : torch::autograd::Function<CrossEntropySum> {
  static Variable forward(AutogradContext* context, const Variable& logits, const Variable& labels) {
    const auto out = kernels::cross_entropy_forward(kernels::best_cross_entropy(), logits, labels, kIgnoreIndex);
    context->save_for_backward({logits, labels, out.stats});
    return out.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    if (at::GradMode::is_enabled())
      throw InternalError(
          "the gradient of cross_entropy_sum() has no gradient itself; use composed_cross_entropy_sum()");
    const auto saved = context->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::Tensor grad = is_last_holder(logits) ? logits.detach() : at::empty_like(logits);
    kernels::cross_entropy_backward(kernels::best_cross_entropy(), grad_outputs[0], logits, saved[1], saved[2], grad);
    return {grad, {}};
  }

 private:
  // Whether nobody can see that the logits are written over: the node, which lets go of them after this, and its caller
  // hold the tensor, no other tensor has the memory, and backward will not come again.
  static bool is_last_holder(const at::Tensor& logits) {
    return !torch::autograd::get_current_graph_task_keep_graph() && logits.use_count() == 2 &&
           logits.storage().use_count() == 1;
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels) {
  const auto own_logits = logits.contiguous(), own_labels = labels.contiguous();
  if (!kernels::uses_own() || !kernels::takes(own_logits, own_labels))
    return composed_cross_entropy_sum(logits, labels);
  return CrossEntropySum::apply(own_logits, own_labels);
}

at::Tensor composed_cross_entropy_sum(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), labels.flatten(), /*weight=*/{},
                                at::Reduction::Sum, kIgnoreIndex);
}

}  // namespace titan::train
