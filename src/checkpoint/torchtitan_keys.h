// Writes the keys of a TorchTitan checkpoint from plain structs and reads them back. The trainer itself makes the
// TensorItems of model parameters and of optimizer.state.<parameter>.*; all other keys are here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/item.h"

namespace titan::checkpoint {

inline constexpr const char* kStepKey = "train_state.step";
inline constexpr const char* kTokensKey = "titan.tokens_seen";  // count of all ranks, also if their number changed
inline constexpr const char* kRunKey = "titan.run";             // a dict that describes the run that saved

// Splits "optimizer.state.X.step" at the first dot into {"optimizer", "state.X.step"}, as TorchTitan nests its state.
// For the keys of model parameters use {fqn}.
StatePath group_path(const std::string& fqn);

// Makes a value item under its group_path().
ValueItem value_item(const std::string& fqn, Value value, bool optional = false);

// Converts `value` to the bytes of its pickle, as TorchTitan stores the state of a data loader, and back. `what` names
// the stored value in errors: unpickled() throws CheckpointError for anything else.
Value pickled(const Value& value);
Value unpickled(const Value& stored, const std::string& what);

// Makes optimizer.state.<parameter>.<name>.
TensorItem optimizer_tensor(const std::string& parameter, const std::string& name, at::Tensor local,
                            dist::ShardSpec spec, bool sharded);

// Appends optimizer.param_groups.<parameter>.*: lr, which is the rate of the next step, `entries` in their order, and
// initial_lr. `entries`: the rest of a group as the optimizer's class in torch.optim keeps it.
void append_param_group(std::vector<Item>& items, const std::string& parameter, double lr,
                        const std::vector<std::pair<std::string, Value>>& entries, double initial_lr);
// Returns optimizer.param_groups.<parameter>.<name>.
std::string param_group_key(const std::string& parameter, const std::string& name);

struct LrSchedulerState {
  double base_lr = 0;
  std::int64_t steps_done = 0;
  double last_lr = 0;  // the rate of the next step
};
void append_lr_scheduler(std::vector<Item>& items, const LrSchedulerState& state);
LrSchedulerState parse_lr_scheduler(const Values& values);

struct TrainProgress {
  std::int64_t step = 0;
  std::int64_t ntokens_seen = 0;
};
void append_train_state(std::vector<Item>& items, const TrainProgress& progress);
TrainProgress parse_train_state(const Values& values);

// State of torch.amp.GradScaler under its names, grad_scaler.scale and grad_scaler._growth_tracker. Only float16 runs
// have it; the parser returns nullopt for a checkpoint without it. TorchTitan ignores these extra keys.
struct GradScalerState {
  double scale = 0;
  std::int64_t growth_tracker = 0;
};
void append_grad_scaler(std::vector<Item>& items, const GradScalerState& state);
std::optional<GradScalerState> parse_grad_scaler(const Values& values);

// Appends titan.rng.rank_<rank>, the CPU generator's state, and titan.rng.world_size. TorchTitan ignores these keys.
void append_rng(std::vector<Item>& items, int rank, int world_size);
// Restores the generator if the checkpoint has this rank's state, saved by as many ranks. Returns true if it did.
bool restore_rng(const Values& values, int rank, int world_size);

}  // namespace titan::checkpoint
