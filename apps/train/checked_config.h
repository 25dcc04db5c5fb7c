// Checks the configuration of a run without reading any file but its own. Nothing here is collective.
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
  std::vector<std::string> notes;     // the same, and nothing to worry about
  config::Origins origins;
  TrainSpec spec;  // without the tokenizer's facts
};

// Checks the configuration of a run and sets up its log. Throws ConfigError with all mistakes on rank 0, and
// AlreadyReported on the others.
CheckedConfig check_to_train(const config::CommandLine& command_line, const LaunchEnv& launch);

// Checks the configuration for a command whose result goes to standard output: the log, the warnings and the notes,
// which rank 0 prints, go to standard error. Throws as check_to_train().
CheckedConfig check_to_print(const config::CommandLine& command_line, const LaunchEnv& launch);

}  // namespace titan
