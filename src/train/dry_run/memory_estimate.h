// The memory of a run on one rank, without any of it: the model, sharded as the run would shard it, goes through two
// steps on the meta device, whose allocator only writes down what is asked of it. What is counted is thus what the run
// does, hooks, gathers and recomputation included, whatever the model.
#pragma once

#include <cstdint>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan::train {

// Bytes of one rank.
struct MemoryEstimate {
  // What is alive at the peak of the second step, each byte in one of these, and in which part of the step that is:
  // "the backward of layers.17".
  std::string moment;
  std::int64_t parameters = 0;   // shards with their padding
  std::int64_t optimizer = 0;    // AdamW's moments
  std::int64_t gradients = 0;    // of the shards
  std::int64_t gathered = 0;     // whole parameters of the groups that compute, and the buffers of their gathers
  std::int64_t reductions = 0;   // buffers that gradients are reduced in
  std::int64_t activations = 0;  // kept from forward for backward, but for logits
  std::int64_t logits = 0;       // and what is of their shape: float32 copies, probabilities, gradients
  std::int64_t temporaries = 0;  // of operators: recomputed activations, gradients of these and of whole parameters
  std::int64_t peak() const {
    return parameters + optimizer + gradients + gathered + reductions + activations + logits + temporaries;
  }

  // What a forward leaves for its backward, activations and logits: it does not depend on the number of ranks.
  std::int64_t kept_by_forward = 0;
  // Parameters, moments and gradients that training.enable_cpu_offload keeps on the host of a GPU: then not among the above.
  std::int64_t on_host = 0;
  std::int64_t staging = 0;  // host memory of a save beside training (checkpoint.async_mode), else 0
  // On a GPU: what PyTorch's caching allocator takes of the device beyond peak() (train/dry_run/caching_pools.h).
  std::int64_t pooled = 0;
};

enum class EstimatedDevice { kCpu, kGpu };

// For rank 0 of `world_size`, which has the largest shards. On kGpu with side streams, and the caching allocator as
// PYTORCH_ALLOC_CONF sets it; with the operators that cpu.kernels or cuda.kernels says. Memory that operators and
// communication libraries take on their own is not in it. Uses the process's allocator of meta tensors: one call at a time.
// Throws ConfigError where degrees do not fit.
MemoryEstimate estimate_memory(const config::JobConfig& config, const TrainSpec& spec, int world_size,
                               EstimatedDevice device);

}  // namespace titan::train
