#include "train/step/train_step.h"

#include <ATen/ATen.h>

#include "base/phase.h"
#include "optim/clip_grad_norm.h"

namespace titan::train {

StepOutput TrainStep::run(const StepInput& input, std::int64_t finished_steps) {
  const PhaseScope phase(Phase::kStep);
  StepOutput output;
  optim::AdamW& optimizer = parts_.optimizer;
  optim::GradScaler* const grad_scaler = parts_.grad_scaler;

  // 1. gradients: every microbatch adds its part of the mean over all valid tokens of the step
  optimizer.zero_grad();
  const auto part_of_mean = [&](const at::Tensor& loss) {
    return loss / static_cast<double>(input.global_valid_tokens);
  };
  const auto objective = [&](const at::Tensor& loss) {
    return grad_scaler ? grad_scaler->scale(part_of_mean(loss)) : part_of_mean(loss);
  };
  for (const auto& batch : input.microbatches) {
    const auto loss = part_of_mean(parts_.forward_backward.forward_backward(batch, objective));
    output.loss = output.loss.defined() ? output.loss + loss : loss;
  }

  // 2. the norm of the whole gradient, and the factor that clips it
  if (grad_scaler) grad_scaler->unscale(optimizer.grads(), parts_.world);
  const auto clip = optim::clip_factor(optimizer.sharded_grads(), parts_.max_norm);
  output.grad_norm = clip.norm;
  output.grad_norms = clip.each;

  // 3. clip and update at this step's learning rate, once a save under way has copied what this changes
  wait_staged();
  const PhaseScope update(Phase::kOptimizer);
  output.lr = parts_.base_lr * parts_.schedule.factor(finished_steps);
  optimizer.set_lr(output.lr);
  if (grad_scaler) {
    output.grad_scale = grad_scaler->current_scale();
    optimizer.step({.found_inf = grad_scaler->found_inf(), .grad_factor = clip.factor});
    grad_scaler->update();
  } else {
    optimizer.step({.grad_factor = clip.factor});
  }
  return output;
}

void TrainStep::wait_staged() {
  const PhaseScope phase(Phase::kCheckpoint);
  parts_.checkpointer.wait_staged();
}

}  // namespace titan::train
