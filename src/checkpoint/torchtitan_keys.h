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
inline constexpr const char* kDataRanksKey = "dataloader.world_size";   // of TorchTitan's data order
inline constexpr const char* kDataOrderKey = "dataloader.titan.order";  // of the elastic order
inline constexpr const char* kRunKey = "titan.run";                     // a dict: what the run that saved was

// {"optimizer", "state.X.step"} for "optimizer.state.X.step": split at the first dot, as TorchTitan nests its state.
// For the keys of model parameters use {fqn}.
StatePath group_path(const std::string& fqn);

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

// The data position of one data-parallel rank (contract/batch_source.h's DataPosition).
struct DataLoaderState {
  std::int64_t num_batches = 0;
  std::int64_t sample_idx = 0;
  std::vector<std::int64_t> token_buffer = {};
};
// dataloader.dp_rank_<dp_rank> and dataloader.world_size. `batch_size`: samples a batch, from which TorchTitan's own
// count of samples is made.
void append_dataloader(std::vector<Item>& items, int dp_rank, int dp_size, const DataLoaderState& state,
                       std::int64_t batch_size);
DataLoaderState parse_dataloader(const Values& values, int dp_rank);

// The position of the elastic order, which TorchTitan does not know: dataloader.titan.order, and
// dataloader.titan.lane_<l> of every lane of this rank. A load asks for the lanes that are this rank's now, whoever
// saved them.
struct LaneState {
  std::int64_t lane = 0;
  std::int64_t windows = 0;
  std::vector<std::int64_t> cursors;
};
struct ElasticState {
  std::int64_t seed = 0;
  std::int64_t num_lanes = 0;
  std::vector<std::int64_t> num_items;
  std::vector<LaneState> lanes;
};
void append_elastic(std::vector<Item>& items, const ElasticState& state);
// Nothing when the checkpoint has no position of this order. `wanted`: the lanes to look for. A lane that the
// checkpoint lacks is left out.
std::optional<ElasticState> parse_elastic(const Values& values, const ElasticState& wanted);

// titan.rng.rank_<rank> and titan.rng.world_size: the CPU generator. TorchTitan ignores these extra keys.
void append_rng(std::vector<Item>& items, int rank, int world_size);
// Restores the generator when the checkpoint has this rank's state from as many ranks as now; says whether it did.
bool restore_rng(const Values& values, int rank, int world_size);

}  // namespace titan::checkpoint
