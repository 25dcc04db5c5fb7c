// `titan-train doctor`: what a person asks when nothing works.
#pragma once

#include <string>
#include <vector>

namespace titan {

// `args` is what follows "doctor". Alone, or as a rank under any launcher: then collective over all ranks, and rank 0
// prints what all of them found. Gives the exit code: kExitFailed when a check fails. Throws ConfigError for a wrong
// command line.
int run_doctor(const std::vector<std::string>& args);

}  // namespace titan
