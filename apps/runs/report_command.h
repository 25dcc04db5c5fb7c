// `titan-train report RUN...`: a page about one run or several.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "report". Writes the page and names it on standard output. Throws ConfigError for a wrong
// command line, DataError for folders without runs, std::system_error for a page that cannot be written.
int run_report_command(const std::vector<std::string>& args);

}  // namespace titan
