// The keys of a TorchTitan checkpoint, made from plain structs and read back into them. Model parameters and the
// tensors optimizer.state.<P>.{step,exp_avg,exp_avg_sq} are TensorItems that the trainer makes itself; all else is
// here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/dcp/checkpoint_io.h"
#include "checkpoint/dcp/item.h"

namespace titan::checkpoint {

inline constexpr const char* kStepKey = "train_state.step";
inline constexpr const char* kTokensKey = "titan.tokens_seen";  // by all ranks, whatever their number was
inline constexpr const char* kRunKey = "titan.run";             // a dict: what the run that saved was

// {"optimizer", "state.X.step"} for "optimizer.state.X.step": split at the first dot, as TorchTitan nests its state.
// For the keys of model parameters use {fqn}.
StatePath group_path(const std::string& fqn);

// A value under its group_path().
ValueItem value_item(const std::string& fqn, Value value, bool optional = false);

// `value` as the bytes of its pickle, which is how TorchTitan stores the state of a data loader, and back. `what` names
// the stored value in errors: unpickled() throws CheckpointError for anything else.
Value pickled(const Value& value);
Value unpickled(const Value& stored, const std::string& what);

// optimizer.state.<parameter>.<name>, name being step, exp_avg or exp_avg_sq. `step` is a 0-d float32 tensor,
// replicated.
TensorItem optimizer_tensor(const std::string& parameter, const std::string& name, at::Tensor local,
                            dist::ShardSpec spec, bool sharded);

// One parameter's group as torch.optim.AdamW keeps it.
struct AdamWGroup {
  double lr = 0;  // of the next step
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  bool foreach = false;
  bool fused = true;
  double initial_lr = 0;
};
// The 12 entries optimizer.param_groups.<parameter>.*
void append_param_group(std::vector<Item>& items, const std::string& parameter, const AdamWGroup& group);
AdamWGroup parse_param_group(const Values& values, const std::string& parameter);

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

// grad_scaler.scale and grad_scaler._growth_tracker, torch.amp.GradScaler's names. Only runs in float16 have them, and
// a checkpoint without them loads: the parser then gives nothing. TorchTitan ignores these extra keys.
struct GradScalerState {
  double scale = 0;
  std::int64_t growth_tracker = 0;
};
void append_grad_scaler(std::vector<Item>& items, const GradScalerState& state);
std::optional<GradScalerState> parse_grad_scaler(const Values& values);

// titan.rng.rank_<rank> and titan.rng.world_size: the CPU generator. TorchTitan ignores these extra keys.
void append_rng(std::vector<Item>& items, int rank, int world_size);
// Restores the generator when the checkpoint has this rank's state from as many ranks as now; says whether it did.
bool restore_rng(const Values& values, int rank, int world_size);

}  // namespace titan::checkpoint
