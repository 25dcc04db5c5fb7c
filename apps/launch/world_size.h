// Number of ranks of a command line.
#pragma once

#include <cstdint>

#include "base/env.h"
#include "config/command_line/command_line.h"

namespace titan {

// Returns the number that the command line names (--world-size to plan for, --nproc to start), else the number of
// ranks that a launcher started.
inline std::int64_t planned_world_size(const config::CommandLine& command_line, const LaunchEnv& launch) {
  return command_line.world_size.value_or(command_line.nproc.value_or(launch.world_size));
}

}  // namespace titan
