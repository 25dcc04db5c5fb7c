// What a rank says of itself when another one waits for it in vain.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "distributed/flight/flight_recorder.h"

namespace titan::dist {

// A collective as another rank sees it.
struct CollectiveFact {
  std::uint64_t number = 0;  // in its group, from 1
  std::string kind;
  std::int64_t input_numel = 0, output_numel = 0;
  std::string dtype;
  std::string label;  // what it is for; may be empty
  CollectiveState state = CollectiveState::kFinished;
  double age = 0;     // seconds since it was started
  std::string phase;  // in which it was: a rank that gave up waiting has left it

  // Whether it is the same collective on another rank.
  bool matches(const CollectiveFact& other) const;
};

struct GroupFact {
  std::string name;
  std::vector<int> ranks;
  bool runs_beside = false;
  std::uint64_t started = 0;           // how many
  std::vector<CollectiveFact> recent;  // the last ones, the oldest first
};

struct RankState {
  int rank = 0;
  std::int64_t step = 0;  // under way; 0 before the first
  std::string phase;      // base/process/phase.h
  double seconds = 0;     // in this phase
  std::vector<GroupFact> groups;
};

// Of this process.
RankState current_state(int rank);

// One line of JSON, and back; throws nlohmann's errors.
std::string to_json(const RankState& state);
RankState rank_state_from_json(const std::string& text);

}  // namespace titan::dist
