// The list of all parameters of a run, the same on every rank. Norms, checksums and counts are indexed by it, so that
// ranks can exchange them as vectors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace titan::train {

struct RunParameter {
  std::string fqn;                       // of its first slot: "layers.3.attention.wq.weight"
  std::vector<std::string> other_names;  // of the slots that are tied to it
  std::vector<std::int64_t> shape;       // of the full parameter
  bool is_trained = true;
  at::ScalarType dtype = at::kFloat;        // of its shards
  std::optional<nn::NamedParameter> local;  // this rank's part; nullopt if other ranks own it

  // True if this rank has a copy, under another of the names, of a parameter that another rank owns.
  bool is_copy() const { return local && local->fqn != fqn; }
};

// A slot of the whole model, before a pass gave parts of it to other ranks.
struct ParameterSlot {
  std::string fqn;
  std::size_t first = 0;  // index of the first slot of the same parameter: its own if it is not tied
  std::vector<std::int64_t> shape;
  bool is_trained = true;
};

// Lists all slots of a model, in their order.
std::vector<ParameterSlot> slots_of(nn::Module& model);

// The dtypes of shards.
struct StoredDtypes {
  at::ScalarType trained = at::kFloat, frozen = at::kFloat;
};

class RunParameters {
 public:
  // Lists the parameters of a model that every rank has, sharded or not. `model` must outlive this.
  explicit RunParameters(nn::Module& model) : RunParameters(model, slots_of(model)) {}
  // Lists the parameters of a model of which this rank has a part. `whole`: slots_of() it on any rank. `dtypes`: of
  // those that this rank does not have.
  RunParameters(nn::Module& model, const std::vector<ParameterSlot>& whole, const StoredDtypes& dtypes = {});
  RunParameters(const RunParameters&) = delete;
  RunParameters& operator=(const RunParameters&) = delete;

  std::size_t size() const { return list_.size(); }
  const RunParameter& operator[](std::size_t index) const { return list_[index]; }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

  // Returns the parameters that this rank's optimizer updates, in the order of this list.
  std::vector<optim::TrainedParameter> to_train() const;
  // Returns every name with its parameter, tied ones under each of their names, in the order of the model's slots:
  // TorchTitan's checkpoints have them so.
  const std::vector<std::pair<std::string, const RunParameter*>>& stored() const { return stored_; }
  // Returns 1 for each parameter of to_train(), and 0 for copies: float32 on `device`. Undefined if there are none.
  at::Tensor owned(at::Device device) const;
  // Returns the elements that this rank stores.
  std::int64_t local_numel() const;

 private:
  std::vector<RunParameter> list_;
  std::vector<std::pair<std::string, const RunParameter*>> stored_;
};

// Describes the parameter groups of a run's optimizer (optim::describe_groups), also on ranks that hold a part of it.
std::vector<std::string> group_lines(const config::Optimizer& options, const RunParameters& parameters);

}  // namespace titan::train
