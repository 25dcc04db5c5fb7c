// `titan-train inspect PATH` lists the contents of a checkpoint or a run, and can verify them.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "inspect". Results go to standard output. Returns the exit code: kExitFailed if a
// verification finds faults. Throws ConfigError for a wrong command line and CheckpointError for a path that is not a
// checkpoint.
int run_inspect(const std::vector<std::string>& args);

}  // namespace titan
