// `titan-train supervise` starts another launcher's command again after a failure.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "supervise". Returns the exit code of the command's last start. Call it before any thread
// is started. Throws ConfigError for a wrong command line or a job that saves nothing.
int run_supervise_command(const std::vector<std::string>& args);

}  // namespace titan
