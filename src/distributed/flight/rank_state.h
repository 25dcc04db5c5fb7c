// The state that a rank reports when another one waits for it too long.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/flight/flight_recorder.h"

namespace titan::dist {

// A collective, send or receive of one rank, as reported to other ranks.
struct CollectiveFact {
  std::uint64_t number = 0;  // as in its CollectiveRecord
  std::string kind;
  std::int64_t input_numel = 0, output_numel = 0;
  std::string dtype;
  std::string label;  // its purpose; may be empty
  CollectiveState state = CollectiveState::kFinished;
  double age = 0;     // seconds since it was started
  std::string phase;  // at its start; a rank that gave up waiting has left it
  int peer = -1;      // global rank at the other end of a send or receive; -1: a collective

  bool is_transfer() const { return peer >= 0; }
  // True if `other` is the same collective on another rank.
  bool matches(const CollectiveFact& other) const;
};

// Returns the kind at the other end of a "send" or a "receive".
const char* other_end(std::string_view kind);

struct GroupFact {
  std::string name;
  std::vector<int> ranks;
  bool runs_beside = false;
  std::uint64_t started = 0;                            // number of collectives started
  std::vector<CollectiveFact> recent;                   // the last collectives, oldest first
  std::vector<CollectiveFact> transfers = {};           // the last sends and receives, oldest first
  std::vector<std::uint64_t> sent = {}, received = {};  // number started, to and from each of `ranks`
  std::vector<CollectiveFact> queued = {};  // the first collective that the device has not finished; empty: none known

  // Returns how many sends to `peer` (the kind "send"), or receives from it, the rank has started.
  std::uint64_t count(std::string_view kind, int peer) const;
  // Returns one of `transfers`; null if it is not among them.
  const CollectiveFact* find_transfer(std::string_view kind, int peer, std::uint64_t number) const;
};

struct RankState {
  int rank = 0;
  std::int64_t step = 0;  // under way; 0 before the first
  std::string phase;      // base/process/phase.h
  double seconds = 0;     // in this phase
  std::vector<GroupFact> groups;
  std::string work = {};  // in a pipeline (base/process/step_work.h); empty if there is none
};

// Returns the state of this process.
RankState current_state(int rank);

// Conversion to one line of JSON and back. Throws nlohmann's errors.
std::string to_json(const RankState& state);
RankState rank_state_from_json(const std::string& text);

}  // namespace titan::dist
