// AdamW on shards: every rank updates what it holds. The update is ATen's fused kernel, the one PyTorch runs, or on CPU
// kernels/cpu/rows/adamw_kernel.h, which leaves the same bits and clips on its way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "optim/clip_grad_norm.h"

namespace titan::optim {

struct AdamWOptions {
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // decoupled, on every parameter
};

// A parameter to train: its name, the local tensor, and how that lies on a mesh; nothing: every rank has the whole.
struct TrainedParameter {
  std::string fqn;
  at::Tensor tensor;
  std::optional<dist::Sharding> sharding = {};
};

// A parameter and its state. Moments have the parameter's shape and dtype; `step` is a float32 scalar on the host.
struct AdamWState {
  std::string fqn;
  at::Tensor param;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor step;
  std::vector<dist::ProcessGroup*> sharded_over = {};  // see ShardedGrad
};

// What a step takes into account; both float32 0-d, or undefined.
struct StepOptions {
  // Where it is 1, nothing changes, the step counters included: GradScaler's, or one made like it. On the host it is read
  // at once, and on a device never.
  at::Tensor found_inf = {};
  at::Tensor grad_factor = {};  // of clip_factor(): the step is that of the gradients times it
};

class AdamW {
 public:
  // `params`: local shards, materialized, in the model's order. Moments start at zero, and take memory from the
  // first step() or states() on: what the first forward and backward leave serves for them. Throws InternalError for a
  // parameter on the meta device.
  AdamW(const std::vector<TrainedParameter>& params, const AdamWOptions& options);

  // Updates every parameter that has a gradient. Throws InternalError when none has: an optimizer made before
  // fully_shard holds the parameters that this replaced.
  // With a grad_factor, some gradients are multiplied by it in place and others stay as they are, so nobody may read
  // them after: who wants clipped gradients calls clip_grad_norm(), and gives none.
  void step(const StepOptions& options = {});
  // Of all parameters in order, undefined where there is none.
  std::vector<at::Tensor> grads() const;
  // The same with the groups that each is sharded over: for total_norm() and its like.
  std::vector<ShardedGrad> sharded_grads() const;
  // Drops the gradients.
  void zero_grad();

  void set_lr(double lr) { options_.lr = lr; }
  AdamWOptions& options() { return options_; }
  const AdamWOptions& options() const { return options_; }
  // With moments.
  std::vector<AdamWState>& states();

 private:
  void check_any_grad() const;
  void count_steps(const at::Tensor& found_inf);
  bool step_in_one_pass(const AdamWState& state, const StepOptions& options) const;
  void step_by_aten(const std::vector<AdamWState*>& states, const StepOptions& options) const;

  AdamWOptions options_;
  std::vector<AdamWState> states_;
};

}  // namespace titan::optim
