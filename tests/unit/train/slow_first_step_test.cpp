#include "train/slow_first_step.h"

#include <gtest/gtest.h>

namespace titan::train {
namespace {

constexpr StepProgress kHalf{.layers = 4, .microbatches = 1, .forwards = 4, .losses = 1, .backwards = 1};

StepLook look_at(double seconds, Phase phase = Phase::kStep, bool in_collective = false) {
  return {.step = 1, .seconds = seconds, .phase = phase, .in_collective = in_collective, .progress = kHalf};
}

TEST(SlowFirstStep, SaysHowLongAStepWillTakeAndWhatToChange) {
  SlowFirstStep slow(250, "Change this.");
  EXPECT_FALSE(slow.look(look_at(9.9)));
  EXPECT_EQ(slow.look(look_at(20)),
            "step 1 has taken 20 s so far: it computes the backward of layer 3 of 4, 50 % of the step are done. A step "
            "will take about 0:40, and the run 2:46:40. Change this.");
}

TEST(SlowFirstStep, SpeaksAgainWheneverItsTimeHasDoubled) {
  SlowFirstStep slow(250, "");
  std::vector<int> said;
  for (int second = 1; second <= 100; ++second)
    if (slow.look(look_at(second))) said.push_back(second);
  EXPECT_EQ(said, (std::vector<int>{10, 20, 40, 80}));
}

TEST(SlowFirstStep, SaysWhatItWaitsFor) {
  const auto said = [](StepLook look) { return SlowFirstStep(10, "Do.").look(look).value(); };
  EXPECT_NE(said(look_at(10, Phase::kStep, true)).find("it waits for other ranks"), std::string::npos);
  StepLook data = look_at(10, Phase::kData);
  data.progress = {};
  EXPECT_EQ(said(data), "step 1 has taken 10 s so far: it waits for data. Do.");
  EXPECT_NE(said(look_at(10, Phase::kOptimizer)).find("it updates the weights"), std::string::npos);
  EXPECT_NE(said(look_at(10, Phase::kValidation)).find("it is in phase validation"), std::string::npos);
}

}  // namespace
}  // namespace titan::train
