// `titan-train compare RUN_A RUN_B`: where two runs part.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "compare". Results go to standard output. Gives the exit code: kExitFailed when the runs part.
// Throws ConfigError for a wrong command line, DataError for folders without runs or without a step in common.
int run_compare_command(const std::vector<std::string>& args);

}  // namespace titan
