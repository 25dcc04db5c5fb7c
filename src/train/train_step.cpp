#include <ATen/ATen.h>

#include "optim/clip_grad_norm.h"
#include "train/trainer.h"

namespace titan::train {

Trainer::StepOutput Trainer::train_step(const StepData& data) {
  StepOutput output;
  output.local_valid_tokens = data.local_valid_tokens;
  output.global_valid_tokens = data.global_valid_tokens;

  // 1. gradients: every microbatch adds its part of the mean over all valid tokens of the step
  optimizer_.zero_grad();
  const auto part_of_mean = [&](const at::Tensor& loss) {
    return loss / static_cast<double>(data.global_valid_tokens);
  };
  const auto objective = [&](const at::Tensor& loss) {
    return grad_scaler_ ? grad_scaler_->scale(part_of_mean(loss)) : part_of_mean(loss);
  };
  for (const auto& batch : data.microbatches) {
    const auto loss = part_of_mean(forward_backward_->forward_backward(batch, objective));
    output.loss = output.loss.defined() ? output.loss + loss : loss;
  }

  // 2. the norm of the whole gradient, and the factor that clips it
  auto& shards = meshes_.fsdp.group(meshes_.fsdp.dim_names().back());
  if (grad_scaler_) grad_scaler_->unscale(optimizer_.grads(), world_.group());
  std::vector<optim::ShardedGrad> grads;
  for (const auto& grad : optimizer_.grads()) grads.push_back({grad, {&shards}});
  const auto clip = optim::clip_factor(grads, config_.training.max_norm);
  output.grad_norm = clip.norm;

  // 3. clip and update at this step's learning rate, once a save under way has copied what this changes
  checkpointer_.wait_staged();
  output.lr = config_.optimizer.lr * schedule_.factor(state_.step);
  optimizer_.set_lr(output.lr);
  if (grad_scaler_) {
    output.grad_scale = grad_scaler_->current_scale();
    optimizer_.step({.found_inf = grad_scaler_->found_inf(), .grad_factor = clip.factor});
    grad_scaler_->update();
  } else {
    optimizer_.step({.grad_factor = clip.factor});
  }
  return output;
}

}  // namespace titan::train
