// A process from which ranks are forked. Loading torch takes longer than most tests, and a process that has used torch
// cannot be forked: its threads would not be there. So each program of tests forks this one before anything else.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace titan::test {

constexpr int kMostRanks = 8;

struct RankStart {
  int num_ranks;
  int guard_ms;      // after which the ranks are killed
  char test[256];    // Suite.Name
  char folder[128];  // each rank's TMPDIR; "N.log" in it is the output of rank N
};

struct RankEnds {
  bool timed_out;
  int status[kMostRanks];  // as of waitpid(2)
};

// Call it first in main(). Returns in this process, and once in each rank, with the name of its test.
std::optional<std::string> fork_rank_starter();

// Starts ranks and waits for their end.
RankEnds run_ranks(const RankStart& start);

}  // namespace titan::test
