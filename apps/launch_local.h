// --nproc N: this program starts N ranks of itself on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// Starts the ranks with `args` (without --nproc), hands signals on, and waits. When one fails, the others end too.
// Gives the exit code of the rank that failed first, else the highest. Call before anything has started a thread.
// Throws ConfigError when another launcher started this process already.
int launch_local(const std::vector<std::string>& args, std::int64_t nproc);

// `args` without --nproc and its value.
std::vector<std::string> without_nproc(const std::vector<std::string>& args);

}  // namespace titan
