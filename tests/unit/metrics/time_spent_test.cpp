#include "metrics/rows/time_spent.h"

#include <gtest/gtest.h>

#include <set>

namespace titan::metrics {
namespace {

TEST(TimeSpent, EveryPhaseHasItsCauseAndTheProcessItsStart) {
  std::array<double, kNumPhases> phases{};
  for (std::size_t i = 0; i < kNumPhases; ++i) phases[i] = static_cast<double>(1 << i);
  const auto at = [&](Phase phase) { return phases[static_cast<std::size_t>(phase)]; };
  const TimeSpent spent = time_spent_in(phases, 2000.0);
  EXPECT_EQ(spent[TimeCause::kProductive], at(Phase::kStep) + at(Phase::kOptimizer) + at(Phase::kDevice));
  EXPECT_EQ(spent[TimeCause::kLoad], at(Phase::kLoad));
  EXPECT_EQ(spent[TimeCause::kData], at(Phase::kData));
  EXPECT_EQ(spent[TimeCause::kCheckpoint], at(Phase::kCheckpoint));
  EXPECT_EQ(spent[TimeCause::kValidation], at(Phase::kValidation));
  EXPECT_EQ(spent[TimeCause::kLog], at(Phase::kLog));
  EXPECT_EQ(spent[TimeCause::kOther], at(Phase::kIdle));
  EXPECT_EQ(spent[TimeCause::kStart], at(Phase::kStart) + 2000.0 - 1023.0);
  EXPECT_EQ(spent.total(), 2000.0);
  EXPECT_EQ(time_spent_in(phases, 0.0).total(), 1023.0) << "a clock that is late takes nothing away";
}

TEST(TimeSpent, GoodputIsTheProductivePart) {
  EXPECT_EQ(TimeSpent{}.goodput_percent(), 0.0);
  EXPECT_EQ((TimeSpent{{3, 1}}).goodput_percent(), 75.0);
}

TEST(TimeSpent, ARestartCountsWhatIsMadeAgainAndTheTimeBetween) {
  // Rows of steps 10 and 20 are 100 s apart; the newest checkpoint is of step 15.
  const EarlierRow kept{10, 1000, {{50, 7}}}, last{20, 1100, {}};
  const TimeSpent spent = earlier_time_spent(kept, last, 15, 1160);
  EXPECT_EQ(spent[TimeCause::kStart], 7.0);
  EXPECT_EQ(spent[TimeCause::kRedone], 50.0);
  EXPECT_EQ(spent[TimeCause::kProductive], 100.0);
  EXPECT_EQ(spent[TimeCause::kDown], 60.0);
}

TEST(TimeSpent, TheTimeUpToAKnownFailureIsLostWork) {
  const EarlierRow kept{10, 1000, {{50, 7}}}, last{20, 1100, {}};
  const TimeSpent spent = earlier_time_spent(kept, last, 15, 1160, 1140);
  EXPECT_EQ(spent[TimeCause::kRedone], 50.0 + 40.0);
  EXPECT_EQ(spent[TimeCause::kDown], 20.0);
  EXPECT_EQ(earlier_time_spent(kept, last, 15, 1160, 1200).total(), 57.0 + 160.0) << "the clocks differ";
  EXPECT_EQ(earlier_time_spent(kept, last, 15, 1160, 900)[TimeCause::kDown], 60.0) << "the clocks differ";
}

TEST(TimeSpent, ARunThatStoppedInOrderWasOnlyDown) {
  const EarlierRow row{10, 1000, {{50, 7}}};
  const TimeSpent spent = earlier_time_spent(row, row, 10, 1030);
  EXPECT_EQ(spent[TimeCause::kRedone], 0.0);
  EXPECT_EQ(spent[TimeCause::kDown], 30.0);
  EXPECT_EQ(spent.total(), 87.0);
  EXPECT_EQ(earlier_time_spent(row, row, 10, 900)[TimeCause::kDown], 0.0) << "the clocks of two machines differ";
}

TEST(TimeSpent, ALineSaysTheLargestLossesFirst) {
  TimeSpent spent;
  spent[TimeCause::kProductive] = 900;
  spent[TimeCause::kStart] = 20;
  spent[TimeCause::kDown] = 79.9;
  spent[TimeCause::kLog] = 0.1;
  EXPECT_EQ(format_goodput(spent), "goodput 90.0 % of 16:40; lost: down 1:20 (8.0 %), start 0:20 (2.0 %)");
  spent = {};
  spent[TimeCause::kProductive] = 60;
  EXPECT_EQ(format_goodput(spent), "goodput 100.0 % of 1:00");
}

TEST(TimeSpent, EveryCauseHasAColumn) {
  std::set<TimeCause> causes;
  for (const TimeUse& use : time_uses()) causes.insert(use.cause);
  EXPECT_EQ(causes.size(), TimeSpent{}.seconds.size());
}

}  // namespace
}  // namespace titan::metrics
