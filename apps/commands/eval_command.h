// `titan-train eval` scores a trained model on tasks.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "eval". Rank 0 prints the scores to standard output, messages go to standard error.
// Returns the exit code. Collective over the ranks of the job. Throws ConfigError and DataError for errors that the
// user can fix, CheckpointError for weights that cannot be used.
int run_eval(const std::vector<std::string>& args);

}  // namespace titan
