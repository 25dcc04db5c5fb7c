// Who holds the others up: what ranks say of themselves, compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "distributed/flight/rank_state.h"

namespace titan::dist {

struct Finding {
  int rank = -1;       // whom it is about; -1: nobody
  std::string reason;  // one line
};

// states[r]: what rank r says; nothing where it has not answered. In this order:
//   1. ranks that have started different collectives under one number of a group (kind, elements, dtype, what for);
//      where the records show it, that one left some out or has some too many;
//   2. a rank for which others wait in a collective that it has not started, and which waits for nobody itself: what it
//      is busy with, and for how long. Who waits for a rank that waits is a victim. One that does not answer counts as
//      such a rank; of several the one named is silent, or has been busy for the longest;
//   3. ranks that wait for each other in collectives of different groups;
//   4. a rank that came to a collective long after the others;
//   5. a collective that all of its ranks have started, and that does not end: nobody's fault;
//   6. where no rank stands in a collective (those of a device only their devices do): the one that has started the
//      fewest.
// Nothing where the ranks are equal.
std::optional<Finding> find_culprit(const std::vector<std::optional<RankState>>& states);

// A line for each rank, about what it does and where it waits. Equal ranks share one.
std::vector<std::string> summarize(const std::vector<std::optional<RankState>>& states);

}  // namespace titan::dist
