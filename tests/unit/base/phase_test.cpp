#include "base/process/phase.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/support/hand_clock.h"

namespace titan {
namespace {

using std::chrono::seconds;

double at(const PhaseLog& log, Phase phase) { return log.seconds()[static_cast<std::size_t>(phase)]; }

TEST(PhaseLog, TimeCountsForTheInnermostPhase) {
  test::HandClock clock;
  PhaseLog log(clock.clock());
  clock.advance(seconds(2));
  const Phase outer = log.enter(Phase::kStep);
  EXPECT_EQ(outer, Phase::kStart);
  clock.advance(seconds(3));
  const Phase inner = log.enter(Phase::kCheckpoint);
  clock.advance(seconds(5));
  EXPECT_DOUBLE_EQ(log.seconds_in_current(), 5.0);
  log.enter(inner);
  clock.advance(seconds(7));
  log.enter(outer);
  clock.advance(seconds(11));
  EXPECT_DOUBLE_EQ(at(log, Phase::kStart), 13.0);
  EXPECT_DOUBLE_EQ(at(log, Phase::kStep), 10.0);
  EXPECT_DOUBLE_EQ(at(log, Phase::kCheckpoint), 5.0);
  EXPECT_DOUBLE_EQ(at(log, Phase::kData), 0.0);
}

class Recorder : public PhaseListener {
 public:
  Recorder() { set_phase_listener(this); }
  ~Recorder() override { set_phase_listener(nullptr); }
  void on_enter(Phase phase) override { said.push_back("+" + std::string(name_of(phase))); }
  void on_leave(Phase phase) override { said.push_back("-" + std::string(name_of(phase))); }
  std::vector<std::string> said;
};

TEST(PhaseScope, NestsAndIsHeard) {
  const Phase before = phase_log().current();
  Recorder recorder;
  {
    const PhaseScope step(Phase::kStep);
    const PhaseScope data(Phase::kData);
    EXPECT_EQ(phase_log().current(), Phase::kData);
  }
  EXPECT_EQ(phase_log().current(), before);
  EXPECT_THAT(recorder.said, ::testing::ElementsAre("+step", "+data", "-data", "-step"));
}

TEST(Phase, EveryOneHasAName) {
  for (std::size_t i = 0; i < kNumPhases; ++i) EXPECT_FALSE(name_of(static_cast<Phase>(i)).empty()) << i;
  EXPECT_EQ(name_of(Phase::kIdle), "idle");
}

}  // namespace
}  // namespace titan
