// Finds the rank that blocks a hung collective by comparing the ranks' reports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "distributed/flight/rank_state.h"

namespace titan::dist {

struct Finding {
  int rank = -1;       // the rank to blame; -1: none
  std::string reason;  // one line
};

// Compares the ranks' states: states[r] is rank r's, nullopt if it has not answered. Looks, in this order, for
//   1. ranks that have started different collectives under the same number of a group (kind, elements, dtype, label);
//      says, where the records show it, that one left some out or has some too many; or the receiver of a message
//      that has another size or dtype at its sender;
//   2. a rank that others wait for in a collective, or at the other end of a message, that it has not started, and
//      that waits for no rank itself; says in which phase it is and for how long. A rank that waits is a victim, one
//      that does not answer is not. Of several, a silent one is named, otherwise the one that has been busy for the
//      longest;
//   3. ranks that wait for each other in collectives of different groups, or in messages;
//   4. a rank that came to a collective long after the others;
//   5. a collective that all its ranks have started but that does not end: no rank is to blame;
//   6. if no rank is blocked in a collective (only devices wait for a device's collectives), the rank that has
//      started the fewest, or the one that has not started the other end of a message while no rank owes it one.
// Returns nullopt if none of these is found.
std::optional<Finding> find_culprit(const std::vector<std::optional<RankState>>& states);

// Returns a line for each rank: what it does and where it waits. Ranks with the same line share it.
std::vector<std::string> summarize(const std::vector<std::optional<RankState>>& states);

}  // namespace titan::dist
