#include "apps/launch/restart_policy.h"

#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "base/error.h"

namespace titan {
namespace {

using Kind = Decision::Kind;
using std::chrono::seconds;

RanksEnd killed(std::int64_t rank) {
  return {.exit_code = 128 + SIGKILL, .rank = rank, .signal = SIGKILL, .is_alone = true};
}

RanksEnd failed(int exit_code, std::int64_t rank = 0) {
  return {.exit_code = exit_code, .rank = rank, .is_alone = true};
}

StartRecord start(const RanksEnd& end, std::int64_t before, std::int64_t after, std::int64_t ranks = 2) {
  return {.ranks = ranks, .end = end, .saved_before = before, .saved_after = after};
}

TEST(RestartPolicy, OnlyFailuresThatMayPassAreRestarted) {
  for (const int code : {1, 3, 99, 134, 137}) EXPECT_TRUE(may_help_to_restart(failed(code))) << code;
  for (const int code : {0, 2, 4, 75}) EXPECT_FALSE(may_help_to_restart(failed(code))) << code;
  RanksEnd stopped = killed(1);
  stopped.stop_signal = SIGTERM;
  EXPECT_FALSE(may_help_to_restart(stopped));
  const std::vector<StartRecord> history = {start(stopped, 0, 5)};
  EXPECT_EQ(decide(history, {.max_restarts = 9}).kind, Kind::kEnd);
}

TEST(RestartPolicy, WithoutTheFlagNothingIsRestarted) {
  const std::vector<StartRecord> history = {start(killed(1), 0, 5)};
  EXPECT_EQ(decide(history, {.max_restarts = 0}).kind, Kind::kEnd);
}

TEST(RestartPolicy, RestartsAreCounted) {
  std::vector<StartRecord> history;
  for (int i = 0; i < 3; ++i) {
    history.push_back(start(killed(i), 5 * i, 5 * i + 5));
    const Decision decision = decide(history, {.max_restarts = 2});
    EXPECT_EQ(decision.kind, i < 2 ? Kind::kRestart : Kind::kGiveUp);
    EXPECT_EQ(decision.wait, seconds(0)) << "every start saved a newer step";
    EXPECT_EQ(decision.reason, i < 2 ? "" : "--max-restarts 2 allows no more");
  }
}

TEST(RestartPolicy, StartsInVainWaitLongerAndThenEnd) {
  std::vector<StartRecord> history = {start(killed(1), 0, 35)};
  EXPECT_EQ(decide(history, {.max_restarts = 100}).wait, seconds(0));
  history.push_back(start(failed(1), 35, 35));
  EXPECT_EQ(decide(history, {.max_restarts = 100}).wait, seconds(1));
  history.push_back(start(failed(1), 35, 35));
  EXPECT_EQ(decide(history, {.max_restarts = 100}).wait, seconds(2));
  std::vector<StartRecord> better = history;
  better.push_back(start(failed(1), 35, 40));
  EXPECT_EQ(decide(better, {.max_restarts = 100}).wait, seconds(0)) << "a newer step was saved";
  history.push_back(start(failed(1), 35, 35));
  const Decision last = decide(history, {.max_restarts = 100});
  EXPECT_EQ(last.kind, Kind::kGiveUp);
  EXPECT_EQ(last.reason, "3 starts in a row saved no step after step 35");
  history.back().ranks = 1;
  EXPECT_EQ(decide(history, {.max_restarts = 100}).kind, Kind::kRestart) << "another number of ranks is another try";
}

TEST(RestartPolicy, ARunThatNeverSavesEndsToo) {
  const std::vector<StartRecord> history(3, start(failed(1), 0, 0));
  EXPECT_EQ(decide(history, {.max_restarts = 100}).reason, "3 starts in a row saved no step at all");
}

TEST(RestartPolicy, WaitsDoubleUpToAMinute) {
  const std::vector<int> expected = {0, 1, 2, 4, 8, 16, 32, 60, 60};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(wait_after(static_cast<std::int64_t>(i)), seconds(expected[i])) << i;
  EXPECT_EQ(wait_after(1'000'000), seconds(60));
}

TEST(RestartPolicy, ARankThatEndsTwiceInARowIsLeftOut) {
  const auto reason = [](const RanksEnd& first, const RanksEnd& second, bool uses_gpus = false) {
    const std::vector<StartRecord> history = {start(first, 0, 5), start(second, 5, 10)};
    return why_fewer_ranks(history, uses_gpus);
  };
  EXPECT_EQ(reason(killed(1), killed(1)), "rank 1 ended by itself in 2 starts in a row");
  EXPECT_EQ(reason(killed(1), failed(99, 1)), "rank 1 ended by itself in 2 starts in a row");
  EXPECT_EQ(reason(killed(0), killed(1)), "");
  EXPECT_EQ(reason(failed(3, 1), failed(3, 1)), "") << "another rank was the reason";
  EXPECT_EQ(reason(failed(1, 1), failed(1, 1)), "") << "the program found an error";
  EXPECT_NE(reason(failed(1, 1), failed(1, 1), /*uses_gpus=*/true), "") << "which may be that of a device";
  RanksEnd together = killed(1);
  together.is_alone = false;
  EXPECT_EQ(reason(together, together), "") << "other ranks failed, too";
  const std::vector<StartRecord> one = {start(killed(1), 0, 5)}, changed = {one[0], start(killed(1), 5, 6, 3)};
  EXPECT_EQ(why_fewer_ranks(one, false), "");
  EXPECT_EQ(why_fewer_ranks(changed, false), "") << "of another number of ranks";
}

TEST(RestartPolicy, TheLargestNumberThatFitsIsTaken) {
  const auto even = [](std::int64_t n) { return n % 2 == 0 ? std::string() : "odd"; };
  EXPECT_EQ(largest_number(1, 8, even), 6);
  EXPECT_EQ(largest_number(7, 8, even), std::nullopt);
  EXPECT_EQ(largest_number(8, 8, even), std::nullopt);
}

TEST(RestartPolicy, TheEndIsDescribed) {
  StartRecord record = start(killed(1), 0, 35);
  EXPECT_EQ(words_for_end(record), "rank 1 was ended by SIGKILL before its first row");
  record.last_step = 37;
  EXPECT_EQ(words_for_end(record), "rank 1 was ended by SIGKILL after step 37");
  record.end = failed(1, 0);
  EXPECT_EQ(words_for_end(record), "rank 0 ended with exit code 1 after step 37");
  record.end = failed(kExitPeerFailed, 0);
  EXPECT_EQ(words_for_end(record), "rank 0 ended with exit code 3 (another rank failed or hung) after step 37");
  record.end.hung = {1, 3};
  EXPECT_EQ(words_for_end(record), "ranks 1, 3 hung after step 37");
}

}  // namespace
}  // namespace titan
