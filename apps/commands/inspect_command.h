// `titan-train inspect PATH`: what a checkpoint holds, and whether it is whole.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "inspect". Results go to standard output. Gives the exit code: kExitFailed when a verification
// finds faults. Throws ConfigError for a wrong command line and CheckpointError for a path that is not a checkpoint.
int run_inspect(const std::vector<std::string>& args);

}  // namespace titan
