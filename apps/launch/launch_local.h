// --nproc N: this program starts N ranks of itself on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// Throws ConfigError if this machine's cores and free memory are not enough for `nproc` ranks.
void check_room_for(std::int64_t nproc);

// Starts `nproc` ranks with `args` (see arguments_of_ranks()), forwards signals to them, and waits. When one fails,
// the others end too. Returns the exit code of the rank that failed first by itself, else the highest one. Call it
// before any thread is started. Throws ConfigError if another launcher started this process.
int launch_local(const std::vector<std::string>& args, std::int64_t nproc);

// Returns `args` without the launcher's own flags: --nproc and its value, --oversubscribe.
std::vector<std::string> arguments_of_ranks(const std::vector<std::string>& args);

}  // namespace titan
