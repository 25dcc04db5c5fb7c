// The state of a model and its optimizer as named tensors, whole or in shards:
// torch.distributed.checkpoint.state_dict's get_ and set_ functions, with the same options. A run's own checkpoints do
// not go through this: every rank writes its shards. It is for what wants whole tensors: one file, another program, a
// rank that has the only copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "distributed/process_group.h"
#include "nn/module.h"
#include "optim/adamw.h"

namespace titan::train {

struct StateDictOptions {
  // Whole tensors, gathered one at a time; else this rank's shards.
  bool full_state_dict = false;
  // Copies on the CPU. With full_state_dict only rank 0 keeps them: the others get an empty state.
  bool cpu_offload = false;
  // set_: rank 0 has the whole tensors and sends them, one at a time; what others pass is not looked at. Needs
  // full_state_dict.
  bool broadcast_from_rank0 = false;
  // set_: the state has all keys and no others. Else missing ones stay as they are, and others are ignored.
  bool strict = true;
};

// In the model's order. Parameters by their names; of the optimizer "state.<name>.exp_avg", ".exp_avg_sq" and ".step".
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

// Collective over `group`, all ranks that the model is spread over. Without cpu_offload, shards and what is not sharded
// share the memory of the live tensors. Throws InternalError while a parameter is gathered.
StateDict get_model_state_dict(nn::Module& model, const StateDictOptions& options, dist::ProcessGroup& group);
StateDict get_optimizer_state_dict(nn::Module& model, optim::AdamW& optimizer, const StateDictOptions& options,
                                   dist::ProcessGroup& group);

// Collective over `group`. Copies into the live tensors, cutting out this rank's part of a whole one, and casting.
// Throws CheckpointError on all ranks, before anything is overwritten, that lists all missing, unexpected and wrongly
// shaped tensors.
void set_model_state_dict(nn::Module& model, const StateDict& state, const StateDictOptions& options,
                          dist::ProcessGroup& group);
void set_optimizer_state_dict(nn::Module& model, optim::AdamW& optimizer, const StateDict& state,
                              const StateDictOptions& options, dist::ProcessGroup& group);

}  // namespace titan::train
