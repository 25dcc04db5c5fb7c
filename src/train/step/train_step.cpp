#include "train/step/train_step.h"

#include <ATen/ATen.h>

#include "base/process/phase.h"
#include "base/process/step_work.h"
#include "optim/clip_grad_norm.h"

namespace titan::train {
namespace {

at::Tensor any_veto(const StepGuests& guests, const StepView& step) {
  at::Tensor any;
  for (const auto& guest : guests) {
    const auto one = guest->before_update(step);
    if (one.defined()) any = any.defined() ? at::maximum(any, one) : one;
  }
  return any;
}

}  // namespace

StepOutput TrainStep::run(const StepInput& input, std::int64_t finished_steps, const StepGuests& guests) {
  const PhaseScope phase(Phase::kStep);
  step_work().begin_step(std::ssize(input.microbatches) * parts_.forward_backward.num_parts());
  StepOutput output;
  optim::Optimizer& optimizer = parts_.optimizer;
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
    const LossSum sum = parts_.forward_backward.forward_backward(batch, objective);
    const auto loss = part_of_mean(sum.loss);
    output.loss = output.loss.defined() ? output.loss + loss : loss;
  }

  // 2. the norm of the full gradient, and the factor that clips it
  if (grad_scaler) grad_scaler->unscale(optimizer.grads(), parts_.world);
  const auto clip = optim::clip_factor_over(optim::clip_factor(optimizer.sharded_grads(), parts_.max_norm),
                                            parts_.stages, parts_.max_norm);
  output.grad_norm = clip.norm;
  output.grad_norms = clip.each;

  // 3. ask the guests: the update may have to be skipped
  output.skipped = any_veto(guests, {finished_steps + 1, input, output});

  // 4. clip and update at this step's learning rate, once a save in progress has copied what the update changes
  wait_staged();
  const PhaseScope in_optimizer(Phase::kOptimizer);
  output.lr = parts_.base_lr * parts_.schedule.factor(finished_steps);
  optimizer.set_lr(output.lr);
  if (grad_scaler) output.grad_scale = grad_scaler->current_scale();
  update(output, clip.factor);
  return output;
}

void TrainStep::update(const StepOutput& output, const at::Tensor& clip_factor) {
  optim::StepOptions options{.found_inf = output.skipped, .grad_factor = clip_factor};
  if (output.skipped.defined()) {
    // The optimizer may scale gradients in place: those of a skipped step stay unchanged as evidence.
    options.grad_factor = at::where(output.skipped > 0, at::ones_like(clip_factor), clip_factor);
  }
  if (parts_.grad_scaler) {
    const auto& found_inf = parts_.grad_scaler->found_inf();
    options.found_inf = output.skipped.defined() ? at::maximum(found_inf, output.skipped) : found_inf;
  }
  parts_.optimizer.step(options);
  if (parts_.grad_scaler) parts_.grad_scaler->update();
}

void TrainStep::wait_staged() {
  const PhaseScope phase(Phase::kCheckpoint);
  parts_.checkpointer.wait_staged();
}

}  // namespace titan::train
