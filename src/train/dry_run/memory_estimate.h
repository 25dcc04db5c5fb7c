// Estimates the memory of a run on one rank without allocating it. The model, sharded as in the run, takes two steps
// on the meta device, whose allocator only records the requests. The estimate therefore includes hooks, gathers and
// recomputation, for any model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "contract/train_contract.h"
#include "train/dry_run/communication.h"

namespace titan::train {

// Bytes of one rank.
struct MemoryEstimate {
  // Live bytes at the peak of the second step, each counted in one field below. `moment`: the part of the step with
  // the peak, "the backward of layers.17".
  std::string moment;
  std::int64_t parameters = 0;   // shards with their padding
  std::int64_t optimizer = 0;    // the optimizer's state
  std::int64_t gradients = 0;    // gradients of the shards
  std::int64_t gathered = 0;     // full parameters of the groups that compute, and their all-gather buffers
  std::int64_t reductions = 0;   // buffers for reducing gradients
  std::int64_t activations = 0;  // kept from forward for backward, without logits
  std::int64_t logits = 0;       // and tensors of their shape: float32 copies, probabilities, gradients
  std::int64_t temporaries = 0;  // recomputed activations, gradients of these and of full parameters
  std::int64_t peak() const {
    return parameters + optimizer + gradients + gathered + reductions + activations + logits + temporaries;
  }

  // Bytes that a forward keeps for its backward, activations and logits. They do not depend on the number of ranks.
  // With a pipeline: what all microbatches between their forward and their backward keep, at most.
  std::int64_t kept_by_forward = 0;
  // Parameters, optimizer state and gradients that training.enable_cpu_offload keeps in the memory of a GPU's host.
  // They are not counted above.
  std::int64_t on_host = 0;
  std::int64_t staging = 0;  // host memory of a save in the background (checkpoint.async_mode), else 0
  // On a GPU: what PyTorch's caching allocator holds beyond peak() (train/dry_run/caching_pools.h).
  std::int64_t pooled = 0;
  // The number of the rank's groups that have a communicator on a GPU.
  int num_communicators = 0;
  // With a pipeline: the rank of it that the other fields are about, and the device memory, peak() + pooled, of all of
  // its ranks.
  int pipeline_rank = 0;
  std::vector<std::int64_t> of_pipeline_ranks;
  Communication communication;
};

enum class EstimatedDevice { kCpu, kGpu };

// Estimates for rank 0 of `world_size`, which has the largest shards; with a pipeline, for all ranks that have these in
// their stages, of which it returns the one that takes the most. kGpu includes side streams, and the caching
// allocator as PYTORCH_ALLOC_CONF sets it. Operators are those of cpu.kernels or cuda.kernels. Memory that operators
// and communication libraries allocate themselves is not included. Uses the process's allocator of meta tensors: one
// call at a time. Throws ConfigError if the degrees do not fit.
MemoryEstimate estimate_memory(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                               EstimatedDevice device);

}  // namespace titan::train
