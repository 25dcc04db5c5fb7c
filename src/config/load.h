// From a TOML file and a command line to a checked JobConfig. The command line wins over the file, the file over
// defaults.
//
// Types are strict (an integer will do for a number, nothing else for anything). In a file the string "None" unsets an
// optional key, as the word does on the command line. Everything wrong is reported at once in one ConfigError, a file's
// mistakes as a compiler would:
//   configs/debug.toml:12:9: error: training.steps: expected an integer, at least 1; found 0
//      12 | steps = 0
//         |         ^
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line.h"
#include "config/job_config.h"

namespace titan::config {

struct LoadedConfig {
  JobConfig config;
  std::vector<std::string> warnings;  // for the log of rank 0
};

// Reads command_line.config_file when there is one. `job.config_file` of the result names it. Throws ConfigError.
LoadedConfig load_job_config(const CommandLine& command_line);

// The same from TOML text; `name` stands for the file in messages. For sweeps and tests.
LoadedConfig load_job_config_text(std::string_view toml_text, const std::string& name,
                                  const CommandLine& command_line = {});

}  // namespace titan::config
