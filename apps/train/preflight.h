// Checks that this machine has the memory and the disk for a run, before it starts.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/checked_config.h"
#include "base/env.h"
#include "config/job_config.h"
#include "config/keys/source.h"
#include "contract/train_contract.h"
#include "train/dry_run/memory_estimate.h"

namespace titan {

// Checks memory and disk, and returns warnings. Throws ConfigError with the locations of the keys to change. Call it
// on one rank per machine. On CPU the ranks share the machine's memory; with CUDA, whose module must be loaded, the
// memory of a device counts. Only rank 0 checks the disk, since most checkpoint folders are shared. Not collective.
std::vector<std::string> check_room(const CheckedConfig& checked, const LaunchEnv& launch, c10::DeviceType device_type);

// Throws Error if other processes hold memory of this rank's device that the run needs. Call it on the ranks that do
// not call check_room(), which looks at device 0. The accelerator must be loaded. Not collective.
void check_own_device(const CheckedConfig& checked, const LaunchEnv& launch);

// Memory for the tensors of one rank. `words` describes it: "this machine has 3 GiB of free memory for 2 ranks".
struct Capacity {
  std::int64_t bytes_of_a_rank = 0;
  std::string words = {};
  train::EstimatedDevice device = train::EstimatedDevice::kCpu;
};
// Bounds of a rank's peak in bytes, by arithmetic alone. They are doubles, which no configuration overflows.
struct MemoryBounds {
  double lower, upper;
};
MemoryBounds memory_bounds(const config::JobConfig& config, const ModelStats& stats, std::int64_t world_size,
                           train::EstimatedDevice device);

// Returns what is wrong, with the keys to change; nullopt if the memory suffices. Takes up to half a second for a
// large model, and no time if the run is far from the limit. Uses the process's allocator of meta tensors. Not
// collective.
std::optional<config::Fault> find_lack_of_memory(const config::JobConfig& config, const TrainSpec& spec,
                                                 std::int64_t world_size, const Capacity& capacity);

struct DiskShortage {
  config::Fault fault;
  bool is_certain = false;  // not even the first checkpoint fits; else not all that the run will keep
};
// Returns what is wrong if the disk of the checkpoint folder is too small; nullopt if it suffices. Not collective.
std::optional<DiskShortage> find_lack_of_disk(const config::JobConfig& config, const TrainSpec& spec);

}  // namespace titan
