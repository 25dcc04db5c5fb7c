// --dry-run: what a run would take, without one.
#pragma once

#include <cstdint>

#include "apps/train/checked_input.h"
#include "base/env.h"
#include "config/command_line/command_line.h"
#include "config/job_config.h"
#include "train/dry_run/named_device.h"

namespace titan {

// The GPU that is present, else this machine's memory, shared by the `local_ranks` that run here.
train::Device device_of_a_rank(const config::JobConfig& config, std::int64_t local_ranks);

// Prints what a rank of `world_size` would take to standard output. Gives the exit code: kExitFailed where --device
// names one that it does not fit. Throws ConfigError.
int run_dry(const config::CommandLine& command_line, CheckedInput& input, std::int64_t world_size,
            const LaunchEnv& env);

}  // namespace titan
