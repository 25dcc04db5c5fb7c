// `titan-train tokenize` turns text into shards of tokens.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "tokenize". Returns the exit code: kExitSavedRequeue if a signal stopped it; the same
// command resumes. Throws ConfigError for a wrong command line and DataError for wrong input.
int run_tokenize(const std::vector<std::string>& args);

}  // namespace titan
