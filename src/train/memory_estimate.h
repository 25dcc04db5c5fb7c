// The memory of a run's tensors on one rank, without any of it: the model, sharded as the run would shard it, goes
// through a step on the meta device, whose allocator only counts. What is counted is thus what the run does, hooks,
// gathers and recomputation included, whatever the model.
#pragma once

#include <cstdint>

#include "config/job_config.h"
#include "contract/train_spec.h"

namespace titan::train {

// Bytes on rank 0, which has the largest shards.
struct MemoryEstimate {
  std::int64_t parameters = 0;   // shards with their padding
  std::int64_t gradients = 0;    // of the shards
  std::int64_t optimizer = 0;    // AdamW's moments
  std::int64_t gathered = 0;     // the two largest groups whole, in the dtype of computation
  std::int64_t activations = 0;  // kept from forward to backward, logits and loss among them
  std::int64_t logits = 0;       // that are in memory at once, with their float32 copy if one is made
  std::int64_t staging = 0;      // host memory of a save beside training (checkpoint.async_mode), else 0
  // The most at any time of a step that is not the first. Temporaries inside an operator or a communication library are
  // not in it. With training.enable_cpu_offload it is all of it, host and device.
  std::int64_t peak = 0;
};

// For `world_size` ranks, with the operators that kernels::uses_own() says. Uses the process's allocator of meta
// tensors: one call at a time. Throws ConfigError where degrees do not fit.
MemoryEstimate estimate_memory(const config::JobConfig& config, const TrainSpec& spec, int world_size);

}  // namespace titan::train
