// `titan-train doctor` checks the machine, the network and a configuration for problems.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` are the words after "doctor". Runs alone or as a rank under any launcher; then it is collective over all
// ranks, and rank 0 prints the results of all. Returns the exit code: kExitFailed if a check fails. Throws ConfigError
// for a wrong command line.
int run_doctor(const std::vector<std::string>& args);

}  // namespace titan
