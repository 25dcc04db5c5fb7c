// Interface of the optimizers. Each works on shards: every rank updates what it holds, without communication unless the
// optimizer says otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "distributed/tensor/sharding.h"
#include "optim/clip_grad_norm.h"

namespace titan::optim {

// A parameter to train: its name, local tensor and sharding over a mesh; nullopt if every rank holds all of it.
struct TrainedParameter {
  std::string fqn;
  at::Tensor tensor;
  std::optional<dist::Sharding> sharding = {};
};

// Optional inputs of a step; both float32 0-d, or undefined.
struct StepOptions {
  // If 1, the step changes nothing, not even the step counters. From GradScaler, or built like it.
  // On the host it is read at once; on a device never, unless parameters are on the host.
  at::Tensor found_inf = {};
  at::Tensor grad_factor = {};  // from clip_factor(): the step uses the gradients times this
};

// A tensor that an optimizer keeps for a parameter. Checkpoints call it optimizer.state.<parameter>.<name>.
struct StateTensor {
  std::string name;  // "exp_avg"
  at::Tensor tensor;
  bool is_like_parameter = true;  // has the parameter's shape and sharding; else it is 0-d and the same on all ranks
};

// An entry of a parameter group, under the name that the optimizer's class in torch.optim gives it.
struct Hyperparameter {
  std::string name;  // "betas"
  Value value;
  // Keys of the configuration that it comes from, one per number of `value`: "optimizer.beta1", "optimizer.beta2".
  std::vector<std::string> keys = {};
  // A mode of torch.optim's class that this optimizer does not have: a checkpoint must not have another value.
  bool must_match = false;
};

class Optimizer {
 public:
  // `params`: local shards in the order of the run's parameters. On the meta device they have state, whose size the dry
  // run asks for, and take no steps.
  explicit Optimizer(std::vector<TrainedParameter> params);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient. Throws InternalError if none has: an optimizer made before fully_shard
  // holds the parameters that fully_shard replaced.
  // With a grad_factor, do not read the gradients afterwards: some are multiplied by it in place and others are
  // unchanged. To read clipped gradients, call clip_grad_norm() and pass no grad_factor.
  virtual void step(const StepOptions& options) = 0;
  void step() { step({}); }

  // Returns the state of parameter `index`, in the order in which torch.optim's class has it; allocates it. The tensors
  // are the optimizer's own: a checkpoint is loaded into them.
  virtual std::vector<StateTensor> state(std::size_t index) = 0;
  // Returns the entries of the group of parameter `index` but the learning rate, in the order of torch.optim's class.
  virtual std::vector<Hyperparameter> hyperparameters(std::size_t index) const = 0;
  // The learning rate of parameters that have no factor of their own.
  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;
  // Returns the factor of parameter `index`, which learns at lr() times it.
  virtual double lr_factor(std::size_t /*index*/) const { return 1; }

  const std::vector<TrainedParameter>& parameters() const { return params_; }
  // Makes each step() set `sums`, an entry per parameter: int64 [2, 1 + summed_state()] on the host, sums of the bits
  // that the update has read (row 0) and written (row 1), of the parameter and of its summed_state(). Any bit that
  // changes in between changes its sum. An entry is undefined if the parameter was not updated, or by a kernel that
  // does not sum. `sums` must outlive the steps; null: no sums, as at the beginning.
  void sum_updates(std::vector<at::Tensor>* sums) { sums_ = sums; }
  // Returns the names of the state that sum_updates() covers.
  virtual std::vector<std::string> summed_state() const { return {}; }
  // Returns what the next update would read, as row 0 of sums, for a parameter that has an entry: what is in memory
  // now.
  virtual at::Tensor sums_now(std::size_t /*index*/) { return {}; }

  std::vector<std::string> fqns() const;
  // Returns all parameters' gradients in order, undefined where there is none.
  std::vector<at::Tensor> grads() const;
  // Same, with the groups that each is sharded over: for total_norm() and similar.
  std::vector<ShardedGrad> sharded_grads() const;
  // Drops the gradients.
  void zero_grad();

 protected:
  // Throws InternalError if no parameter has a gradient.
  void check_any_grad() const;
  // Returns null if nobody wants sums; otherwise as many undefined entries as there are parameters.
  std::vector<at::Tensor>* new_sums();

 private:
  std::vector<TrainedParameter> params_;
  std::vector<at::Tensor>* sums_ = nullptr;
  std::vector<std::vector<dist::ProcessGroup*>> sharded_over_;  // by parameter, see ShardedGrad
};

}  // namespace titan::optim
