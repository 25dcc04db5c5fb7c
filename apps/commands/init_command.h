// `titan-train init` prints a configuration to start from.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "init". Returns the exit code. Throws ConfigError for a wrong command line.
int run_init_command(const std::vector<std::string>& args);

}  // namespace titan
