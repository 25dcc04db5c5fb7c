// AdamW on shards: every rank updates what it holds. The update is ATen's fused kernel, the one PyTorch runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace titan::optim {

struct AdamWOptions {
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // decoupled, on every parameter
};

// A parameter and its state. Moments have the parameter's shape and dtype; `step` is a float32 scalar on the host.
struct AdamWState {
  std::string fqn;
  at::Tensor param;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor step;
};

class AdamW {
 public:
  // `params`: the local shards, materialized, in the model's order. Moments start at zero, and take memory from the
  // first step() or states() on: what the first forward and backward leave serves for them. Throws InternalError for a
  // parameter on the meta device.
  AdamW(const std::vector<std::pair<std::string, at::Tensor>>& params, const AdamWOptions& options);

  // Updates every parameter that has a gradient. Throws InternalError when none has: an optimizer made before
  // fully_shard holds the parameters that this replaced.
  // Where `found_inf` (GradScaler's) is given and 1, nothing changes, the step counters included.
  void step(const at::Tensor& found_inf = {});
  // Of all parameters in order, undefined where there is none.
  std::vector<at::Tensor> grads() const;
  // Drops the gradients.
  void zero_grad();

  void set_lr(double lr) { options_.lr = lr; }
  AdamWOptions& options() { return options_; }
  const AdamWOptions& options() const { return options_; }
  // With moments.
  std::vector<AdamWState>& states();

 private:
  AdamWOptions options_;
  std::vector<AdamWState> states_;
};

}  // namespace titan::optim
