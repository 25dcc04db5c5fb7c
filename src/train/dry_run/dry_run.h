// What a run would take: found out on the meta device, without memory and without ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "contract/train_contract.h"
#include "train/dry_run/memory_estimate.h"
#include "train/dry_run/named_device.h"

namespace titan::train {

// What a GPU must hold besides what the program allocates. Round figures: they depend on the driver, the versions of
// libraries and the network.
inline constexpr std::int64_t kContextBytes = std::int64_t{768} << 20;  // CUDA's context with the kernels it has loaded
inline constexpr std::int64_t kCommunicatorBytes = std::int64_t{1} << 30;  // NCCL's buffers, for each group of ranks
// The part of a device that what is predicted may take. Of a GPU the rest is for workspaces of operators and for what
// fragments over a long run, of a machine whose CPUs train for the system and libraries.
inline constexpr double kUsablePartOfGpu = 0.95;
inline constexpr double kUsablePartOfHost = 0.9;

// How a rank's memory stands against the device's.
struct Demand {
  MemoryEstimate memory;
  std::int64_t context = 0;        // on a GPU, kContextBytes
  std::int64_t communicators = 0;  // on a GPU, for NCCL
  std::int64_t total() const { return memory.peak() + memory.pooled + context + communicators; }
  std::int64_t allowed = 0;  // the usable part of the device
  bool fits() const { return total() <= allowed; }
};

// A change of the configuration that makes a rank's memory smaller.
struct Suggestion {
  std::string change;  // "activation_checkpoint.mode = \"full\""
  std::int64_t total = 0;
  bool fits = false;
};

// Bytes of a checkpoint's tensors on disk.
struct CheckpointSize {
  std::int64_t full = 0;   // parameters and AdamW's moments
  std::int64_t model = 0;  // parameters alone, in checkpoint.export_dtype
};
CheckpointSize checkpoint_size(const config::JobConfig& config, std::int64_t num_parameters);

struct DryRun {
  std::string model;
  int world_size = 1;
  int replicas = 1;
  int shards = 1;
  int tensor_parallel = 1;  // ranks that share each layer
  std::int64_t parameters = 0;
  std::int64_t flops_per_token = 0;  // forward and backward
  std::int64_t sequences_per_step = 0;
  std::int64_t tokens_per_step = 0;
  std::string dtype, recomputation;  // of the shards; activation_checkpoint.mode
  CheckpointSize checkpoint;
  Device device;
  Demand demand;
  std::vector<Suggestion> suggestions;  // where it does not fit: those that fit first

  double flops_per_step() const;
};

// What one rank of `world_size` needs of `device`. Throws ConfigError where the degrees do not fit.
Demand demand_of(const config::JobConfig& config, const TrainSpec& spec, int world_size, const Device& device);

// For `world_size` ranks on devices like `device`. Throws ConfigError where the degrees do not fit.
DryRun dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size, const Device& device);

// For people: whose lines of bytes sum to the peak, and what to change where it does not fit.
std::string to_table(const DryRun& run);
// For programs: one JSON object with every figure, sizes in bytes.
std::string to_json(const DryRun& run);

}  // namespace titan::train
