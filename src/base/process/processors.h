// Finds the processors that this process may use: a container, batch system or launcher may
// restrict it to a part of the machine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace titan {

// A rank's processors, sent to the other ranks so that each knows with whom it shares them.
struct Processors {
  std::string host;
  std::vector<int> cores;  // ids it may run on (sched_getaffinity), ascending
  // Number of processors it may keep busy at once: at most the number of cores, and at most the
  // control groups' cpu.max, which all ranks of a host share. Rounded up.
  std::int64_t quota = 1;
};

Processors own_processors();

// Writes "host 0,1,2 2", which parse_processors() reads.
std::string to_text(const Processors& processors);
Processors parse_processors(const std::string& text);

// Processors of a rank's host, as shared by the ranks on that host.
struct ProcessorShare {
  std::int64_t ranks = 1;    // on this host
  std::int64_t cores = 1;    // number any of these ranks may run on, or keep busy, whichever is less
  std::int64_t threads = 1;  // for this rank: its cores divided by the ranks that may run on any of them; at least 1
};
ProcessorShare share_of_rank(const std::vector<Processors>& all, std::size_t rank);

}  // namespace titan
