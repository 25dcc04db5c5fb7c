// The memory of this machine, as far as this process may use it.
#pragma once

#include <cstdint>

namespace titan {

// Bytes that new processes can have without others being ended for it: what /proc/meminfo calls available, or less
// where a control group (a container, a Slurm step) allows less. The largest number where the system does not say.
std::int64_t free_memory_bytes();

}  // namespace titan
