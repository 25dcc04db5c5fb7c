// A process from which ranks are forked. Loading torch takes longer than most tests, and a process that has used torch
// cannot be forked: its threads would be missing. So each test program forks this process before anything else.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace titan::test {

constexpr int kMostRanks = 8;

struct RankStart {
  int num_ranks;
  int guard_ms;      // time limit, after which the ranks are killed
  char test[256];    // Suite.Name
  char folder[128];  // each rank's TMPDIR; "N.log" in it is the output of rank N
};

struct RankEnds {
  bool timed_out;
  int status[kMostRanks];  // as returned by waitpid(2)
};

// Call this first in main(). Returns nullopt in this process, and once in each rank the name of its test.
std::optional<std::string> fork_rank_starter();

// Starts ranks and waits for their end.
RankEnds run_ranks(const RankStart& start);

}  // namespace titan::test
