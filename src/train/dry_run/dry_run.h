// Predicts what a run takes, on the meta device, without memory and without ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "train/dry_run/memory_estimate.h"
#include "train/dry_run/named_device.h"
#include "train/dry_run/pipeline_forecast.h"

namespace titan::train {

// GPU memory beyond the program's own allocations. The numbers are rounded: they depend on the driver, the versions of
// libraries and the network.
inline constexpr std::int64_t kContextBytes = std::int64_t{768} << 20;  // CUDA's context with the kernels it has loaded
inline constexpr std::int64_t kCommunicatorBytes = std::int64_t{1} << 30;  // NCCL's buffers, per communicator
// Usable fraction of a device. The rest of a GPU covers workspaces of operators and fragmentation over a long run; the
// rest of a machine that trains on CPUs covers the system and libraries.
inline constexpr double kUsablePartOfGpu = 0.95;
inline constexpr double kUsablePartOfHost = 0.9;

// Memory of a rank, and whether the device has enough.
struct Demand {
  MemoryEstimate memory;
  std::int64_t context = 0;        // on a GPU, kContextBytes
  std::int64_t communicators = 0;  // on a GPU, for NCCL
  std::int64_t total() const { return memory.peak() + memory.pooled + context + communicators; }
  std::int64_t allowed = 0;  // the usable part of the device
  bool fits() const { return total() <= allowed; }
};

// A change of the configuration that reduces a rank's memory.
struct Suggestion {
  std::string change;  // "activation_checkpoint.mode = \"full\""
  std::int64_t total = 0;
  bool fits = false;
};

// Bytes of a checkpoint's tensors on disk.
struct CheckpointSize {
  std::int64_t full = 0;   // parameters and the optimizer's moments
  std::int64_t model = 0;  // parameters alone, in checkpoint.export_dtype
};
CheckpointSize checkpoint_size(const config::JobConfig& config, const ModelStats& stats);

struct DryRun {
  std::string model;
  int world_size = 1;
  dist::ParallelDims dims;
  std::int64_t parameters = 0;
  std::int64_t trained = 0;          // of them; the others are frozen
  std::int64_t flops_per_token = 0;  // forward and backward
  std::int64_t sequences_per_step = 0;
  std::int64_t tokens_per_step = 0;
  // The shards' dtype, activation_checkpoint.mode, optimizer.name.
  std::string dtype, recomputation, optimizer;
  std::string frozen_dtype;         // of frozen parameters; empty if it is `dtype`
  std::vector<std::string> groups;  // of the optimizer's parameters; empty if there is only one
  CheckpointSize checkpoint;
  std::optional<PipelineForecast> pipeline;  // nullopt without one
  Device device;
  Demand demand;
  std::vector<Suggestion> suggestions;  // if the run does not fit; changes that make it fit come first

  double flops_per_step() const;
};

// Returns what one rank of `world_size` needs of `device`. Throws ConfigError if the degrees do not fit.
Demand demand_of(const config::JobConfig& config, const TrainSpec& spec, int world_size, const Device& device);

// Predicts a run of `world_size` ranks on devices like `device`. Throws ConfigError if the degrees do not fit.
DryRun dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size, const Device& device);

// Returns a table for people: lines of bytes that sum to the peak, and what to change if the run does not fit.
std::string to_table(const DryRun& run);
// Returns one JSON object with every value, for programs. Sizes are in bytes.
std::string to_json(const DryRun& run);

}  // namespace titan::train
