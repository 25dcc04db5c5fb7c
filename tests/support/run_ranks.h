// Runs the body of a test on several real ranks: the test binary starts itself once a rank (no fork: torch's threads do
// not survive one), and each copy runs only the calling test's body over real Gloo on loopback.
#pragma once

#include <functional>

#include "dist/world.h"

namespace titan::test {

// Call it as the whole body of a TEST. The test fails when any rank fails, with that rank's output; ranks that take
// longer than `timeout_s` are ended.
void on_ranks(int num_ranks, const std::function<void(dist::World& world)>& body, int timeout_s = 60);

}  // namespace titan::test
