// Holds what the ranks' reports say of groups and waits, and finds the words for it. Only for code that explains hangs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "distributed/flight/rank_state.h"

namespace titan::dist::hang {

using States = std::vector<std::optional<RankState>>;

// A group with its members' records.
struct Group {
  std::string name;
  std::vector<int> ranks;
  bool runs_beside = false;
  std::map<int, const GroupFact*> members;  // by rank; only ranks that answered
};

// A rank, or its device, blocked in a collective, a send or a receive.
struct Wait {
  int rank;
  const Group* group;
  const CollectiveFact* what;
};

// Returns the groups of all ranks; those that run beside training come last. They point into `states`.
std::vector<Group> groups_of(const States& states);
// Returns the collective of a rank's record; null if the record does not hold it.
const CollectiveFact* find_number(const GroupFact& group, std::uint64_t number);
// Returns who is blocked in what; points into `groups` and their states.
std::vector<Wait> waits_of(const std::vector<Group>& groups);
// Returns what a device has not finished for the longest time; nullopt if no rank knows of any.
std::optional<Wait> find_oldest_queued(const std::vector<Group>& groups);

// Returns "rank 3" or "ranks 0, 2-5".
std::string name_ranks(const std::set<int>& ranks);
std::string with_verb(const std::set<int>& ranks, const char* one, const char* several);
std::string in_seconds(double seconds);
// Returns "8 elements of float32".
std::string size_of(const CollectiveFact& transfer);
// Returns "all_gather of 4 -> 8 elements of float32 for layers.2" or "a receive of 8 elements of float32 from rank 2".
std::string describe(const CollectiveFact& fact);
// Returns "no. 3 of 'world'", after "message " for a send or receive.
std::string place_of(const Group& group, std::uint64_t number);
std::string place_of(const Wait& wait);
// Returns "at step 12 (forward of stage 1, microbatch 2)" or "before the first step".
std::string at_step(const RankState& state);
// Returns what a rank does and where it waits.
std::string describe_rank(const RankState& state);

}  // namespace titan::dist::hang
