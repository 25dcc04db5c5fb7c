// Runs the body of a test on several real ranks: processes that run only the calling test, over real Gloo on loopback.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "distributed/world.h"

namespace titan::test {

// Call this as the only statement of a TEST. The test fails if any rank fails, with that rank's output; ranks that take
// longer than guard(60) are killed. The TMPDIR of these ranks is a folder of their own, removed afterwards. If `device`
// is not the CPU, its accelerator must be registered in the rank before the call.
void on_ranks(int num_ranks, const std::function<void(dist::World& world)>& body,
              c10::DeviceType device = c10::DeviceType::CPU);

struct RankEnd {
  std::string how;   // "exit code 3", "SIGKILL"
  std::string said;  // standard output and standard error
};

// Does the same for ranks that may end in any way. In a rank it returns an empty vector, if it returns at all: the
// statements after it in a test are for the process that ctest started.
std::vector<RankEnd> ends_of_ranks(int num_ranks, const std::function<void(dist::World& world)>& body);

// True in a rank, false in the process that ctest started.
bool is_rank();

}  // namespace titan::test
