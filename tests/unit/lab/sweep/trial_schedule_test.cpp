#include "lab/sweep/plan/trial_schedule.h"

#include <gmock/gmock.h>

#include <set>

#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::ElementsAre;

Schedule schedule(std::size_t num_trials, Rules rules) { return {std::vector<Trial>(num_trials), std::move(rules)}; }

TEST(Schedule, RunsEveryTrialOnceWithoutRungs) {
  auto s = schedule(2, {});
  EXPECT_EQ(s.next(), 0u);
  EXPECT_EQ(s.next(), 0u);
  s.start(0);
  EXPECT_EQ(s.next(), 1u);
  s.start(1);
  EXPECT_EQ(s.next(), std::nullopt);
  s.finish(0, 2.0);
  s.finish(1, kNaN);
  EXPECT_EQ(s.next(), std::nullopt);
  EXPECT_EQ(s.trials()[0].state, State::kDone);
  EXPECT_EQ(s.trials()[1].state, State::kDone);
}

TEST(Schedule, InterruptedTrialsGoOnFirstAndAreNoFailures) {
  auto s = schedule(3, {});
  s.start(1);
  s.interrupt(1);
  EXPECT_EQ(s.next(), 1u);  // before 0, which loses nothing by waiting
  s.start(1);
  EXPECT_EQ(s.trials()[1].starts, 2);
  EXPECT_EQ(s.trials()[1].failures, 0);
}

TEST(Schedule, RetriesFailedTrialsAsOftenAsAllowed) {
  auto s = schedule(1, {.rungs = {}, .retries = 1});
  s.start(0);
  s.fail(0, "first");
  EXPECT_EQ(s.next(), 0u);
  s.start(0);
  s.fail(0, "second");
  EXPECT_EQ(s.next(), std::nullopt);
  EXPECT_EQ(s.trials()[0].error, "second");
  s.retry_failed();
  s.start(0);
  s.fail(0, "third", /*may_retry=*/false);
  EXPECT_EQ(s.trials()[0].state, State::kFailed);
}

TEST(Schedule, AFreshStartAfterARestartEqualsOneWithoutIt) {
  auto s = schedule(4, {.rungs = {10, 20}, .reduction_factor = 2});
  s.start(0);
  s.finish(0, 1.0);
  s.start(1);
  // The state that a killed driver leaves on disk, taken over by the next driver.
  Schedule after(s.trials(), s.rules());
  after.interrupt(1);
  EXPECT_EQ(after.next(), 1u);
  EXPECT_EQ(after.target_rung(1), 0u);
  EXPECT_EQ(after.target_rung(0), 1u);
}

// Losses of nine trials at steps 10, 30 and 90.
const std::vector<std::vector<double>> kCurves = {{5.0, 4.0, 3.5}, {6.0, 5.5, 5.0}, {4.5, 3.8, 3.6},
                                                  {7.0, 6.9, 6.8}, {4.0, 3.9, 3.9}, {6.5, 6.0, 5.9},
                                                  {5.5, 3.0, 2.0}, {8.0, 7.0, 6.0}, {kNaN, kNaN, kNaN}};

// Runs one trial after the other. Returns the order in which they ran.
std::vector<std::size_t> run_alone(Schedule& s) {
  std::vector<std::size_t> order;
  while (const auto trial = s.next()) {
    const auto rung = s.target_rung(*trial);
    s.start(*trial);
    s.finish(*trial, kCurves[*trial][rung]);
    order.push_back(*trial);
  }
  return order;
}

TEST(Halving, PromotesTheBestThirdOfWhatIsThere) {
  auto s = schedule(9, {.rungs = {10, 30, 90}, .reduction_factor = 3});
  // The best third of the finished trials is promoted: 2 of the first three, then 4, and 0 when all nine have
  // finished. At the second rung 2, 4 and 0 meet, and 2 has the lowest loss there.
  EXPECT_THAT(run_alone(s), ElementsAre(0, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 0, 2));
  EXPECT_EQ(s.trials()[2].state, State::kDone);
  EXPECT_EQ(s.trials()[0].state, State::kPaused);
  EXPECT_EQ(s.trials()[8].rung_objectives.size(), 1u);
}

TEST(Halving, MaximizesWhereAsked) {
  auto s = schedule(3, {.rungs = {10, 30}, .reduction_factor = 3, .maximize = true});
  EXPECT_THAT(run_alone(s), ElementsAre(0, 1, 2, 1));
}

TEST(Halving, TrialsInParallelTakeFreshOnesUntilAPromotionIsDue) {
  auto s = schedule(9, {.rungs = {10, 30, 90}, .reduction_factor = 3});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(s.next(), i);
    s.start(i);
  }
  s.finish(0, 5.0);
  EXPECT_EQ(s.next(), 3u);  // two are still running: nothing waits for them
  s.finish(1, 6.0);
  s.finish(2, 4.5);
  EXPECT_EQ(s.next(), 2u);
  s.start(2);
  EXPECT_EQ(s.next(), 3u);
}

TEST(Halving, FailedTrialsCountAsTheWorst) {
  auto s = schedule(4, {.rungs = {10, 30}, .reduction_factor = 3});
  for (std::size_t i = 0; i < 3; ++i) s.start(i);
  s.finish(0, 5.0);
  s.fail(1, "out of memory");
  s.fail(2, "out of memory");
  EXPECT_EQ(s.next(), 0u);  // not 3, the fresh one
}

TEST(Halving, DivergedTrialsAreNeverPromoted) {
  auto s = schedule(3, {.rungs = {10, 30}, .reduction_factor = 3});
  for (std::size_t i = 0; i < 3; ++i) s.start(i);
  for (std::size_t i = 0; i < 3; ++i) s.finish(i, kNaN);
  EXPECT_EQ(s.next(), std::nullopt);
}

TEST(Halving, OneTrialAlwaysGetsToTheEnd) {
  auto s = schedule(2, {.rungs = {10, 30, 90}, .reduction_factor = 3});
  EXPECT_THAT(run_alone(s), ElementsAre(0, 1, 0, 0));
  EXPECT_EQ(s.trials()[0].state, State::kDone);
}

}  // namespace
}  // namespace titan::sweep
