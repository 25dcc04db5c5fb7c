// How many ranks a command line is about.
#pragma once

#include <cstdint>

#include "base/env.h"
#include "config/command_line/command_line.h"

namespace titan {

// Those that it names (--world-size to plan for, --nproc to start), else those that a launcher has started.
inline std::int64_t planned_world_size(const config::CommandLine& command_line, const LaunchEnv& launch) {
  return command_line.world_size.value_or(command_line.nproc.value_or(launch.world_size));
}

}  // namespace titan
