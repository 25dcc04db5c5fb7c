// The default mode: train.
#pragma once

#include "base/env.h"
#include "config/command_line/command_line.h"

namespace titan {

// Checks the input, meets the other ranks, opens the data and trains. Collective over all ranks of the launch. Returns
// the exit code. Throws Error.
int run_train(const config::CommandLine& command_line, const LaunchEnv& launch);

}  // namespace titan
