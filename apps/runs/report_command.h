// `titan-train report RUN...` writes a page about one or more runs.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "report". Writes the page and prints its path. Throws ConfigError for a wrong
// command line, DataError for folders without runs, std::system_error for a page that cannot be written.
int run_report_command(const std::vector<std::string>& args);

}  // namespace titan
