// `titan-train tokenizer train|encode|decode`: tokenizers without training a model.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "tokenizer". Results go to standard output, messages to standard error. Gives the exit code.
// Throws ConfigError for a wrong command line and DataError for wrong input.
int run_tokenizer_command(const std::vector<std::string>& args);

}  // namespace titan
