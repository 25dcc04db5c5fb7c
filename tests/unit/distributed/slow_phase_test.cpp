#include "distributed/flight/slow_phase.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "tests/support/guard.h"

namespace titan::dist {
namespace {

constexpr double kFirst = 300, kLimit = 100;

TEST(SlowPhases, SaysItOnceAnEpisode) {
  SlowPhases phases(kFirst, kLimit);
  EXPECT_EQ(phases.look({Phase::kData, 12, 99, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kData, 12, 100.4, false}),
            "has been in data for 100 s at step 12, and in no collective");
  EXPECT_EQ(phases.look({Phase::kData, 12, 150, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kStep, 12, 1, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kStep, 12, 100, false}), "has been in step for 100 s at step 12, and in no collective");
  EXPECT_TRUE(phases.look({Phase::kDevice, 12, 100, false}));  // nothing else tells of a GPU that hangs in one rank
}

TEST(SlowPhases, SaysWhichWorkOfAPipelineIsSlow) {
  SlowPhases phases(kFirst, kLimit);
  EXPECT_EQ(phases.look({Phase::kStep, 12, 100, false, "forward of stage 1, microbatch 2"}),
            "has been in step for 100 s at step 12 (forward of stage 1, microbatch 2), and in no collective");
}

TEST(SlowPhases, LetsTheStartTakeLonger) {
  SlowPhases phases(kFirst, kLimit);
  EXPECT_EQ(phases.look({Phase::kLoad, 0, 299, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kLoad, 0, 300, false}), "has been in load for 300 s, and in no collective");
  EXPECT_EQ(phases.look({Phase::kStep, 1, 299, false}), std::nullopt);
  EXPECT_TRUE(phases.look({Phase::kStep, 1, 300, false}));
}

TEST(SlowPhases, KnowsThatAStepTakesItsTime) {
  SlowPhases phases(kFirst, kLimit);
  EXPECT_TRUE(phases.look({Phase::kStep, 2, 101, false}));
  EXPECT_EQ(phases.look({Phase::kStep, 2, 150, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kStep, 3, 160, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kStep, 3, 299, false}), std::nullopt);
  EXPECT_TRUE(phases.look({Phase::kStep, 3, 300, false}));
  EXPECT_TRUE(phases.look({Phase::kData, 4, 100, false}));  // another phase is reported separately
}

TEST(SlowPhases, SaysNothingOfWhatIsAsLongAsItWasAskedToBe) {
  SlowPhases phases(kFirst, kLimit);
  for (const Phase phase : {Phase::kValidation, Phase::kIdle, Phase::kLog, Phase::kStart})
    EXPECT_EQ(phases.look({phase, 12, 1e6, false}), std::nullopt);
  EXPECT_EQ(phases.look({Phase::kData, 12, 1e6, true}), std::nullopt);  // waits for others: the time limit tells
}

TEST(SlowPhaseWatch, LooksAtThisProcess) {
  std::atomic<bool> is_said = false;
  const PhaseScope phase(Phase::kData);
  const SlowPhaseWatch watch(SlowPhases(0, 0),
                             [&](const std::string& said) { is_said = said.starts_with("has been in data for "); });
  test::wait_until([&] { return is_said.load(); }, "the watch to speak");
}

}  // namespace
}  // namespace titan::dist
