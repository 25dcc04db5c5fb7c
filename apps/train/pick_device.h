// Picks the device that a rank trains on. Nothing here is collective.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/env.h"
#include "config/job_config.h"
#include "train/dry_run/named_device.h"

namespace titan {

// Returns the number of devices that CUDA exposes for a value of CUDA_VISIBLE_DEVICES: the entries before the first
// invalid one (empty or negative); 0 if an entry repeats.
std::size_t num_visible_devices(const std::string& list);

// Throws ConfigError if `count` devices cannot give each rank of this machine its own. `source`: the origin of the
// count, "this machine".
void check_num_devices(std::size_t count, const std::string& source, const LaunchEnv& launch);

// Returns CUDA if there are devices and training.device allows it, else CPU. Loads the CUDA module, unless
// training.device is "cpu". Throws ConfigError if the number of devices, their kernels or the dtypes do not fit, if
// training.device is "cuda" without a device, or if a key needs a GPU and the run is on CPU
// (profiling.enable_memory_snapshot).
c10::DeviceType pick_device_type(const config::JobConfig& config, const LaunchEnv& launch);

// Returns the GPU that is present, else the share of this machine's memory for each of the `local_ranks` that run
// here.
train::Device device_of_a_rank(const config::JobConfig& config, std::int64_t local_ranks);

}  // namespace titan
