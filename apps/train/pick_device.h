// Which device a rank trains on, and what it has. Nothing here is collective.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/env.h"
#include "config/job_config.h"
#include "train/dry_run/named_device.h"

namespace titan {

// Number of devices that CUDA exposes for a value of CUDA_VISIBLE_DEVICES: the entries up to the first invalid one (an
// empty or a negative one); 0 where an entry repeats.
std::size_t num_visible_devices(const std::string& list);

// Throws ConfigError where `count` devices are not one for each of this machine's ranks. `source`: who has so many,
// "this machine".
void check_num_devices(std::size_t count, const std::string& source, const LaunchEnv& launch);

// CUDA where there are devices and training.device allows it, after a look at their number and at the dtypes; else CPU.
// Loads the CUDA module, unless training.device is "cpu". Throws ConfigError, also where a key asks for what a CPU has
// not: profiling.enable_memory_snapshot.
c10::DeviceType pick_device_type(const config::JobConfig& config, const LaunchEnv& launch);

// The GPU that is present, else this machine's memory, shared by the `local_ranks` that run here.
train::Device device_of_a_rank(const config::JobConfig& config, std::int64_t local_ranks);

}  // namespace titan
