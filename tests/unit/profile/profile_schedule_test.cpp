#include "profile/profile_schedule.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace titan::profile {
namespace {

// Returns a letter for each of the first `steps` steps.
std::string actions(std::int64_t freq, std::int64_t warm_up, std::int64_t active, std::int64_t steps) {
  config::Profiling profiling;
  profiling.profile_freq = freq;
  profiling.profiler_warmup = warm_up;
  profiling.profiler_active = active;
  const Schedule schedule(profiling);
  std::string text;
  for (std::int64_t step = 1; step <= steps; ++step) {
    switch (schedule.action_of(step)) {
      case Action::kNone:
        text += '-';
        break;
      case Action::kWarmUp:
        text += 'w';
        break;
      case Action::kRecord:
        text += 'r';
        break;
      case Action::kRecordAndSave:
        text += 'S';
        break;
    }
  }
  return text;
}

// torch.profiler.schedule(wait=freq - warmup - active, warmup=warmup, active=active) gives the same for steps 0, 1, ...
TEST(Schedule, IsTorchsOfEachCycle) {
  EXPECT_EQ(actions(10, 3, 1, 22), "------wwwS------wwwS--");
  EXPECT_EQ(actions(6, 1, 3, 12), "--wrrS--wrrS");
  EXPECT_EQ(actions(3, 0, 3, 6), "rrSrrS");
  EXPECT_EQ(actions(1, 0, 1, 3), "SSS");
  EXPECT_EQ(actions(4, 3, 1, 5), "wwwSw");
}

TEST(Schedule, WhatDoesNotFitIsRefused) { EXPECT_THROW(actions(3, 3, 1, 1), InternalError); }

}  // namespace
}  // namespace titan::profile
