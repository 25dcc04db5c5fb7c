#include "library/run_or_report.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace titan {
namespace {

// Runs a job of one rank, which has no other ranks to notify.
int run_alone(const std::function<int(dist::World&)>& body) {
  return run_or_report(std::make_unique<dist::World>(LaunchEnv{}, c10::DeviceType::CPU, std::chrono::seconds(1)), body);
}

TEST(RunOrReport, GivesTheCodeOfItsBody) {
  EXPECT_EQ(run_alone([](dist::World& world) { return world.size() == 1 ? 75 : 0; }), 75);
}

TEST(RunOrReport, ThrowsOnWhatNobodyElseHasSaid) {
  EXPECT_THROW(run_alone([](dist::World&) -> int { throw CheckpointError("x"); }), CheckpointError);
  EXPECT_THROW(run_alone([](dist::World&) -> int { throw std::runtime_error("x"); }), std::runtime_error);
}

TEST(RunOrReportDeathTest, EndsTheProcessWhereAPeerIsGone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_alone([](dist::World&) -> int { throw PeerError("rank 1 is gone"); }),
              testing::ExitedWithCode(kExitPeerFailed), "rank 1 is gone");
}

}  // namespace
}  // namespace titan
