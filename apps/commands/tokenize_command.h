// titan-train tokenize: from text to shards of tokens.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args`: those after "tokenize". Gives the exit code: kExitSavedRequeue when a signal stopped it, and the same command
// goes on. Throws ConfigError for the command line, DataError for the input.
int run_tokenize(const std::vector<std::string>& args);

}  // namespace titan
