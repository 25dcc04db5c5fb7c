// `titan-train convert SOURCE TARGET` converts a model from one checkpoint format to another, offline.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "convert". Messages go to standard error. Returns the exit code. Throws ConfigError for a
// wrong command line or configuration and CheckpointError for a source that cannot be read or does not fit.
int run_convert(const std::vector<std::string>& args);

}  // namespace titan
