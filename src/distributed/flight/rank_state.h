// The state that a rank reports when another one waits for it too long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/flight/flight_recorder.h"

namespace titan::dist {

// A collective of one rank, as reported to other ranks.
struct CollectiveFact {
  std::uint64_t number = 0;  // in its group, from 1
  std::string kind;
  std::int64_t input_numel = 0, output_numel = 0;
  std::string dtype;
  std::string label;  // its purpose; may be empty
  CollectiveState state = CollectiveState::kFinished;
  double age = 0;     // seconds since it was started
  std::string phase;  // at its start; a rank that gave up waiting has left it

  // True if `other` is the same collective on another rank.
  bool matches(const CollectiveFact& other) const;
};

struct GroupFact {
  std::string name;
  std::vector<int> ranks;
  bool runs_beside = false;
  std::uint64_t started = 0;           // number of collectives started
  std::vector<CollectiveFact> recent;  // the last collectives, oldest first
};

struct RankState {
  int rank = 0;
  std::int64_t step = 0;  // under way; 0 before the first
  std::string phase;      // base/process/phase.h
  double seconds = 0;     // in this phase
  std::vector<GroupFact> groups;
};

// Returns the state of this process.
RankState current_state(int rank);

// Conversion to one line of JSON and back. Throws nlohmann's errors.
std::string to_json(const RankState& state);
RankState rank_state_from_json(const std::string& text);

}  // namespace titan::dist
