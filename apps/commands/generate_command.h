// `titan-train generate`: what a trained model writes.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "generate". Text goes to standard output as it comes, messages to standard error. Gives the
// exit code. Throws ConfigError and DataError for what the user can put right, CheckpointError for weights that cannot
// be used.
int run_generate(const std::vector<std::string>& args);

}  // namespace titan
