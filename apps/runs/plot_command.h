// `titan-train plot RUN...` plots curves in the terminal.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "plot". Charts go to standard output. Throws ConfigError for a wrong command line,
// DataError for folders without runs.
int run_plot_command(const std::vector<std::string>& args);

}  // namespace titan
