// Tells which processors this process may use: a container, a batch system or a launcher leaves it a part of the
// machine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// Describes a rank's processors to the others, so that each knows whom it shares them with.
struct Processors {
  std::string host;
  std::vector<int> cores;  // that it may run on (sched_getaffinity), rising
  // How many it may keep busy at once: no more than there are cores, nor than the control groups' cpu.max allows, which
  // all ranks of a host share. Rounded up.
  std::int64_t quota = 1;
};

Processors own_processors();

// "host 0,1,2 2", which parse_processors() reads.
std::string to_text(const Processors& processors);
Processors parse_processors(const std::string& text);

// The part of the ranks that share a host with rank `rank`, of all ranks' processors.
struct ProcessorShare {
  std::int64_t ranks = 1;    // of this host
  std::int64_t cores = 1;    // that any of them may run on, or may keep busy, whichever is less
  std::int64_t threads = 1;  // for this rank: its cores over the ranks that may run on any of them; at least 1
};
ProcessorShare share_of_rank(const std::vector<Processors>& all, std::size_t rank);

}  // namespace titan
