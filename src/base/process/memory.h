// Reports the memory of this machine that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace titan {

// Memory that new processes can use without others being killed.
struct FreeMemory {
  std::int64_t bytes = 0;
  std::string owner = "this machine";  // or "this container or control group (memory.max 2.00 GiB)"
};

// Returns MemAvailable of /proc/meminfo, or less if a control group (a container, a Slurm step) allows less. The
// largest int64 if the system does not say.
FreeMemory free_memory();

// Returns why this machine should not start `ranks` ranks, without a final full stop: "this machine
// has 2 cores and 3 GiB of free memory, enough for 8 ranks (...)". Empty if it may.
std::string too_many_ranks(std::int64_t ranks);

// Counts the processes that the system has killed because memory was used up.
struct MemoryKills {
  std::int64_t of_group = 0;    // this process's control group (a container, a Slurm step)
  std::int64_t of_machine = 0;  // all, also in other groups
};
MemoryKills memory_kills();

// Returns what the system has killed since `before`: "the system has meanwhile killed 1 of the processes of this
// container or control group, whose memory (2.00 GiB, memory.max) was used up". Empty if it has killed none.
std::string memory_kills_since(const MemoryKills& before);

}  // namespace titan
