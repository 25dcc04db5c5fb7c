// The default mode: train.
#pragma once

#include "config/command_line/command_line.h"

namespace titan {

// Loads the configuration and trains, or prints what --dry-run or --print-config ask for. Gives the exit code. Throws
// Error.
int run_train(const config::CommandLine& command_line);

}  // namespace titan
