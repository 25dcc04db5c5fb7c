// AdamW on shards. The update runs ATen's fused kernel, like PyTorch, or on CPU kernels/cpu/rows/adamw_kernel.h, which
// produces the same bits and clips in the same pass. If moments have another dtype than their parameter, both kernels
// compute in float32 on copies of a part at a time, and the results are rounded to the nearest (ties to even).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "optim/optimizer.h"
#include "optim/param_groups.h"

namespace titan::optim {

struct AdamWOptions {
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;                                 // decoupled
  std::optional<at::ScalarType> state_dtype = std::nullopt;  // of the moments; nullopt: the parameter's
};

class AdamW final : public Optimizer {
 public:
  // The moments start at zero and are allocated by the first step() or state(), so that they reuse memory that the
  // first forward and backward free.
  // `rates`: of each parameter; empty: all have the factor 1 and the options' weight decay.
  AdamW(std::vector<TrainedParameter> params, const AdamWOptions& options, std::vector<ParameterRates> rates = {});

  using Optimizer::step;
  void step(const StepOptions& options) override;
  // Returns step (a float32 scalar on the parameter's device), exp_avg and exp_avg_sq (of the parameter's shape).
  std::vector<StateTensor> state(std::size_t index) override;
  std::vector<Hyperparameter> hyperparameters(std::size_t index) const override;
  double lr() const override { return options_.lr; }
  void set_lr(double lr) override { options_.lr = lr; }
  double lr_factor(std::size_t index) const override { return rates_.at(index).lr_factor; }
  std::vector<std::string> summed_state() const override { return {"exp_avg", "exp_avg_sq"}; }
  at::Tensor sums_now(std::size_t index) override;

 private:
  struct State {
    at::Tensor param;
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor step;
  };
  // A parameter, or a part of it, with its gradient, state and rates.
  struct Update {
    at::Tensor param, grad, exp_avg, exp_avg_sq, step;
    ParameterRates rates;
  };
  void allocate_moments(State& state) const;
  void count_steps(const at::Tensor& found_inf);
  // `sums`: gets those of Optimizer::sum_updates(); null if nobody wants them.
  bool step_in_one_pass(const Update& update, const StepOptions& options, at::Tensor* sums = nullptr) const;
  void step_by_aten(const std::vector<Update>& updates, const StepOptions& options) const;
  void step_group_by_aten(const std::vector<Update>& updates, const ParameterRates& rates,
                          const StepOptions& options) const;
  void step_in_float32(const std::vector<Update>& updates, const StepOptions& options) const;

  AdamWOptions options_;
  std::vector<ParameterRates> rates_;  // by parameter
  std::vector<State> states_;
};

}  // namespace titan::optim
