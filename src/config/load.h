// Loads a checked JobConfig from TOML files, the environment and a command line. Precedence, the last wins:
// defaults, included files (toml_files.h), the file itself, the environment (environment.h), the command line.
//
// Types are strict, except that an integer is accepted for a number. In a file the string "None" unsets an optional
// key, like the word None on the command line. All errors are reported at once in one ConfigError, a file's errors in
// a compiler's format (source.h). This includes checks between keys, except those whose keys already have an error.
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
  std::vector<std::string> notes;     // the same, and nothing to worry about
  Origins origins;                    // of all given values
};

// Reads command_line.config_file, if there is one, and this process's environment. `job.config_file` of the result
// names the file. With `world_size`, also checks that degrees and batch sizes fit that many ranks. Throws ConfigError.
LoadedConfig load_job_config(const CommandLine& command_line, std::optional<std::int64_t> world_size = {});

// Same from TOML text; `name` stands for the file in messages. Uses the given environment. For sweeps and tests.
LoadedConfig load_job_config_text(std::string_view toml_text, const std::string& name,
                                  const CommandLine& command_line = {}, const Environment& environment = {},
                                  std::optional<std::int64_t> world_size = {});

}  // namespace titan::config
