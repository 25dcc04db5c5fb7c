// From TOML files, the environment and a command line to a checked JobConfig. Precedence, the last wins: defaults,
// included files (toml_files.h), the file itself, the environment (environment.h), the command line.
//
// Types are strict (an integer will do for a number, nothing else for anything). In a file the string "None" unsets an
// optional key, as the word does on the command line. Everything wrong is reported at once in one ConfigError, a file's
// mistakes as a compiler would (source.h). Checks between keys are among them, but for those whose keys are wrong
// already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line/command_line.h"
#include "config/command_line/environment.h"
#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

struct LoadedConfig {
  JobConfig config;
  std::vector<std::string> warnings;  // for the log of rank 0
  Origins origins;                    // of every value that was given
};

// Reads command_line.config_file when there is one, and this process's environment. `job.config_file` of the result
// names the file. With `world_size`, also checks that degrees and batch sizes fit so many ranks. Throws ConfigError.
LoadedConfig load_job_config(const CommandLine& command_line, std::optional<std::int64_t> world_size = {});

// The same from TOML text; `name` stands for the file in messages. The environment is the one given. For sweeps and
// tests.
LoadedConfig load_job_config_text(std::string_view toml_text, const std::string& name,
                                  const CommandLine& command_line = {}, const Environment& environment = {},
                                  std::optional<std::int64_t> world_size = {});

}  // namespace titan::config
