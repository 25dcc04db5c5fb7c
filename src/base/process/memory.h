// Reports the memory of this machine that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace titan {

// Returns the bytes that new processes can use without others being killed: MemAvailable of /proc/meminfo, or
// less if a control group (a container, a Slurm step) allows less. The largest int64 if the system does not say.
std::int64_t free_memory_bytes();

// Returns why this machine should not start `ranks` ranks, without a final full stop: "this machine
// has 2 cores and 3 GiB of free memory, enough for 8 ranks (...)". Empty if it may.
std::string too_many_ranks(std::int64_t ranks);

}  // namespace titan
