// The memory of this machine, as far as this process may use it.
#pragma once

#include <cstdint>
#include <string>

namespace titan {

// Bytes that new processes can have without others being ended for it: what /proc/meminfo calls available, or less
// where a control group (a container, a Slurm step) allows less. The largest number where the system does not say.
std::int64_t free_memory_bytes();

// Why this machine should not get that many ranks, without an end: "this machine has 2 cores and 3 GiB of free memory,
// enough for 8 ranks (...)". "" where it may.
std::string too_many_ranks(std::int64_t ranks);

}  // namespace titan
