// `titan-train tokenizer train|encode|decode` trains a tokenizer or applies one.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "tokenizer". Results go to standard output, messages to standard error. Returns the exit
// code. Throws ConfigError for a wrong command line and DataError for wrong input.
int run_tokenizer_command(const std::vector<std::string>& args);

}  // namespace titan
