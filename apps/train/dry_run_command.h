// --dry-run: what a run would take, without one.
#pragma once

#include "base/env.h"
#include "config/command_line/command_line.h"

namespace titan {

// Prints what a rank would take to standard output, warnings to standard error. Gives the exit code: kExitFailed where
// --device names a device that it does not fit. Throws ConfigError.
int run_dry(const config::CommandLine& command_line, const LaunchEnv& launch);

}  // namespace titan
