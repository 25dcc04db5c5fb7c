// Runs the body of a test on several real ranks: processes that run only the calling test's body, over real Gloo on
// loopback.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "distributed/world.h"

namespace titan::test {

// Call it as the whole body of a TEST. The test fails when any rank fails, with that rank's output; ranks that take
// longer than guard(60) are ended. A rank's TMPDIR is a folder of this call's ranks, removed after it. With another
// `device` than the CPU its accelerator must be registered in the rank before the call.
void on_ranks(int num_ranks, const std::function<void(dist::World& world)>& body,
              c10::DeviceType device = c10::DeviceType::CPU);

struct RankEnd {
  std::string how;   // "exit code 3", "SIGKILL"
  std::string said;  // on standard output and standard error
};

// The same for ranks that may end in any way. In a rank it gives nothing, if it returns at all: what follows it in a
// test is for the process that ctest started.
std::vector<RankEnd> ends_of_ranks(int num_ranks, const std::function<void(dist::World& world)>& body);

// True in a rank, false in the process that ctest started.
bool is_rank();

}  // namespace titan::test
