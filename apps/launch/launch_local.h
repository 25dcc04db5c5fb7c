// --nproc N: this program starts N ranks of itself on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// Throws ConfigError when this machine's cores and free memory are not good for so many ranks.
void check_room_for(std::int64_t nproc);

// Starts the ranks with `args` (those of the ranks), hands signals on, and waits. When one fails, the others end too.
// Gives the exit code of the rank that failed first by itself, else the highest. Call before anything has started a
// thread. Throws ConfigError when another launcher started this process already.
int launch_local(const std::vector<std::string>& args, std::int64_t nproc);

// `args` without what speaks to the launcher: --nproc and its value, --oversubscribe.
std::vector<std::string> arguments_of_ranks(const std::vector<std::string>& args);

}  // namespace titan
