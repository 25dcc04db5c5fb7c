// Whether this machine has the memory and the disk that a run will want, before it starts.
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

// Call it on one rank per machine, whose memory the ranks there share; with CUDA, whose module must be loaded, it is
// the memory of a device that counts. The disk is looked at by rank 0 alone, since most folders are shared with it.
// Gives warnings. Throws ConfigError with the places of the keys to change. Not collective.
std::vector<std::string> check_room(const CheckedConfig& checked, const LaunchEnv& launch, c10::DeviceType device_type);

// `capacity`: bytes for the tensors of one rank, and where they are in words: "this machine has 3 GiB free for 2
// ranks". Says what is wrong, with keys to change; nothing where it will do. Takes up to half a second for a large
// model, and none for one that is far from the limit. Uses the process's allocator of meta tensors. Not collective.
struct Capacity {
  std::int64_t bytes_of_a_rank = 0;
  std::string words = {};
  train::EstimatedDevice device = train::EstimatedDevice::kCpu;
};
std::optional<config::Fault> find_lack_of_memory(const config::JobConfig& config, const TrainSpec& spec,
                                                 std::int64_t world_size, const Capacity& capacity);

struct DiskShortage {
  config::Fault fault;
  bool is_certain = false;  // not even the first checkpoint has room; else only not all that the run will keep
};
// Of the folder that checkpoints go to. Not collective.
std::optional<DiskShortage> find_lack_of_disk(const config::JobConfig& config, const TrainSpec& spec);

}  // namespace titan
