// --dry-run: predicts what a run takes, without running it.
#pragma once

#include "base/env.h"
#include "config/command_line/command_line.h"

namespace titan {

// Prints what a rank would take to standard output, and warnings to standard error. Returns the exit code: kExitFailed
// if the run does not fit the device that --device names. Throws ConfigError.
int run_dry(const config::CommandLine& command_line, const LaunchEnv& launch);

}  // namespace titan
