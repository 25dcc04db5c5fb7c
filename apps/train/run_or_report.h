// What a rank does when it fails among others.
#pragma once

#include <functional>
#include <memory>

#include "distributed/world.h"

namespace titan {

// What `body` gives. Where it throws, the first rank that fails tells the others its reason, and throws on; the others
// end with that reason in place of their own symptom. A rank whose own reason another has given already ends with the
// exit code of its error and without a word. A world in which something failed is not taken down: what other threads
// wait for may be the rank that is gone. Not collective, whatever `body` is.
int run_or_report(std::unique_ptr<dist::World> world, const std::function<int(dist::World&)>& body);

}  // namespace titan
