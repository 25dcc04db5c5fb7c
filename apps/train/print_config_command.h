// --print-config: the configuration that a run would have.
#pragma once

#include "base/env.h"
#include "config/command_line/command_line.h"

namespace titan {

// Prints the configuration as TOML to standard output, and warnings to standard error. Returns the exit code. Throws
// ConfigError.
int run_print_config(const config::CommandLine& command_line, const LaunchEnv& launch);

}  // namespace titan
