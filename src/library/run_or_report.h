// Handles the failure of a rank among other ranks.
#pragma once

#include <functional>
#include <memory>

#include "distributed/world.h"

namespace titan {

// Returns what `body` returns. If `body` throws, the first rank that fails tells the others its reason and rethrows;
// the others end with that reason instead of their own symptom. A rank whose reason another rank has already reported
// ends silently, with the exit code of its error. An error that all ranks have alike is printed by rank 0 only, and
// every rank ends with its code, also one that has not come to it yet. After a failure the world is not destroyed: its
// threads may wait for the rank that is gone. Not collective, even if `body` is.
int run_or_report(std::unique_ptr<dist::World> world, const std::function<int(dist::World&)>& body);

}  // namespace titan
