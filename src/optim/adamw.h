// AdamW on shards: every rank updates what it holds. The update runs ATen's fused kernel, like PyTorch,
// or on CPU kernels/cpu/rows/adamw_kernel.h, which produces the same bits and clips in the same pass.
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

// A parameter to train: its name, local tensor and sharding over a mesh; nullopt if every rank
// holds the full parameter.
struct TrainedParameter {
  std::string fqn;
  at::Tensor tensor;
  std::optional<dist::Sharding> sharding = {};
};

// A parameter and its state. Moments have the parameter's shape and dtype; `step` is a float32 scalar on its device.
struct AdamWState {
  std::string fqn;
  at::Tensor param;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor step;
  std::vector<dist::ProcessGroup*> sharded_over = {};  // see ShardedGrad
};

// Optional inputs of a step; both float32 0-d, or undefined.
struct StepOptions {
  // If 1, the step changes nothing, not even the step counters. From GradScaler, or built like it.
  // On the host it is read at once; on a device never, unless parameters are on the host.
  at::Tensor found_inf = {};
  at::Tensor grad_factor = {};  // from clip_factor(): the step uses the gradients times this
};

class AdamW {
 public:
  // `params`: local shards, materialized, in the model's order. The moments start at zero and are
  // allocated by the first step() or states(), so that they reuse memory that the first forward and
  // backward free. Throws InternalError for a parameter on the meta device.
  AdamW(const std::vector<TrainedParameter>& params, const AdamWOptions& options);

  // Updates every parameter that has a gradient. Throws InternalError if none has: an optimizer
  // made before fully_shard holds the parameters that fully_shard replaced.
  // With a grad_factor, do not read the gradients afterwards: some are multiplied by it in place and
  // others are unchanged. To read clipped gradients, call clip_grad_norm() and pass no grad_factor.
  void step(const StepOptions& options = {});
  // Returns all parameters' gradients in order, undefined where there is none.
  std::vector<at::Tensor> grads() const;
  // Same, with the groups that each is sharded over: for total_norm() and similar.
  std::vector<ShardedGrad> sharded_grads() const;
  // Drops the gradients.
  void zero_grad();

  void set_lr(double lr) { options_.lr = lr; }
  AdamWOptions& options() { return options_; }
  const AdamWOptions& options() const { return options_; }
  // Returns the states of all parameters; allocates the moments.
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
