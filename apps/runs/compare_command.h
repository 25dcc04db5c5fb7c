// `titan-train compare RUN_A RUN_B` finds the step at which two runs diverge.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "compare". Results go to standard output. Returns the exit code: kExitFailed if the runs
// differ. Throws ConfigError for a wrong command line, DataError for folders without runs or without a step in common.
int run_compare_command(const std::vector<std::string>& args);

}  // namespace titan
