// The configuration of a run, checked without a look at any file but its own. Nothing here is collective.
#pragma once

#include <string>
#include <vector>

#include "base/env.h"
#include "config/command_line/command_line.h"
#include "config/job_config.h"
#include "config/keys/source.h"
#include "contract/train_contract.h"

namespace titan {

// A configuration and the model that it describes.
struct CheckedConfig {
  config::JobConfig config;
  std::vector<std::string> warnings;  // for rank 0 to print
  config::Origins origins;
  TrainSpec spec;  // without what the tokenizer adds to it
};

// For a run: sets up the log as the configuration has it. Throws ConfigError with all that is wrong on rank 0, and
// SaidByAnother on the others.
CheckedConfig check_to_train(const config::CommandLine& command_line, const LaunchEnv& launch);

// For a result on standard output: the log goes to standard error, and so do the warnings, which rank 0 prints. Throws
// as check_to_train().
CheckedConfig check_to_print(const config::CommandLine& command_line, const LaunchEnv& launch);

}  // namespace titan
