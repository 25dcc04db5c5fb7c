// `titan-train generate` prints text that a trained model writes.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "generate". Text goes to standard output as it comes, messages to standard error. Returns
// the exit code. Throws ConfigError and DataError for errors that the user can fix, CheckpointError for weights that
// cannot be used.
int run_generate(const std::vector<std::string>& args);

}  // namespace titan
