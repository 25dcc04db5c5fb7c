#include "apps/launch/supervisor.h"

#include <gmock/gmock.h>

#include <csignal>
#include <fstream>

#include "base/clock.h"
#include "base/fs.h"
#include "config/command_line/command_line.h"
#include "tests/support/temporary_folder.h"

namespace titan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Describes a start of the ranks: the step that it saves (0: none), and its end.
struct Act {
  std::int64_t saves;
  RanksEnd end;
};

const RanksEnd kDone = {.exit_code = 0};
const RanksEnd kKilled = {.exit_code = 128 + SIGKILL, .rank = 1, .signal = SIGKILL, .is_alone = true};

class SupervisorLoop : public ::testing::Test {
 protected:
  // Supervises starts that do what `acts` says. Returns the exit code.
  int play(std::vector<Act> acts, const RestartLimits& limits, const std::string& why_not_two = "") {
    ranks_.clear();
    Supervised run{.ranks = 2, .limits = limits, .folder = folder_, .checkpoints = folder_ / "checkpoint"};
    run.run = [&](std::int64_t ranks, std::int64_t start, bool /*has_rows*/) {
      ranks_.push_back(ranks);
      const Act& act = acts.at(static_cast<std::size_t>(start - 1));
      if (act.saves > 0) {
        const auto step = folder_ / "checkpoint" / ("step-" + std::to_string(act.saves));
        std::filesystem::create_directories(step);
        std::ofstream(step / ".metadata") << "x";
        std::ofstream(folder_ / "metrics.jsonl")
            << "{\"step\":" << act.saves + 2 << ",\"unix_time\":" << static_cast<std::int64_t>(unix_now()) + 1 << "}\n";
      }
      RanksEnd end = act.end;
      end.unix_time = unix_now();
      return end;
    };
    run.why_not = [&](std::int64_t ranks) { return ranks == 2 ? why_not_two : ""; };
    ::testing::internal::CaptureStderr();
    const int code = supervise(run);
    said_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
  std::vector<std::int64_t> ranks_;  // of each start
  std::string said_;
};

TEST_F(SupervisorLoop, GoesOnUntilARunEndsInOrder) {
  EXPECT_EQ(play({{35, kKilled}, {40, kKilled}, {0, kDone}}, {.max_restarts = 3}), 0);
  EXPECT_THAT(ranks_, ElementsAre(2, 2, 2));
  EXPECT_EQ(said_,
            "titan-train: start 2 of at most 4: rank 1 was ended by SIGKILL after step 37; resuming from step 35 with "
            "2 ranks (2 steps lost)\n"
            "titan-train: start 3 of at most 4: rank 1 was ended by SIGKILL after step 42; resuming from step 40 with "
            "2 ranks (2 steps lost)\n");
  const std::string events = read_file(folder_ / "events.jsonl");
  EXPECT_THAT(events, HasSubstr("\"event\":\"restart\",\"start\":2,\"exit_code\":137,\"rank\":1,"));
  EXPECT_THAT(events, HasSubstr("\"event\":\"restart\",\"start\":3,"));
}

TEST_F(SupervisorLoop, EndsAfterAsManyRestartsAsAllowed) {
  EXPECT_EQ(play({{35, kKilled}, {40, kKilled}}, {.max_restarts = 1}), 137);
  EXPECT_THAT(said_, HasSubstr("titan-train: gives up after start 2 of at most 2: rank 1 was ended by SIGKILL after "
                               "step 42; --max-restarts 1 allows no more\n"));
  EXPECT_THAT(read_file(folder_ / "events.jsonl"), HasSubstr("\"event\":\"gave_up\",\"start\":2,"));
}

TEST_F(SupervisorLoop, LeavesOutARankThatEndsTwiceInARow) {
  EXPECT_EQ(play({{35, kKilled}, {40, kKilled}, {0, kDone}}, {.max_restarts = 3, .min_ranks = 1}), 0);
  EXPECT_THAT(ranks_, ElementsAre(2, 2, 1));
  EXPECT_THAT(said_, HasSubstr("titan-train: the next start has 1 rank in place of 2: rank 1 ended by itself in 2 "
                               "starts in a row\n"));
}

TEST_F(SupervisorLoop, TakesTheRanksThatTheMachineIsGoodFor) {
  EXPECT_EQ(play({{35, kKilled}, {0, kDone}}, {.max_restarts = 3, .min_ranks = 1}, "this machine has 1 GPU left"), 0);
  EXPECT_THAT(ranks_, ElementsAre(2, 1));
  EXPECT_THAT(said_, StartsWith("titan-train: the next start has 1 rank in place of 2: this machine has 1 GPU left\n"));
  EXPECT_EQ(play({{45, kKilled}}, {.max_restarts = 3, .min_ranks = 2}, "this machine has 1 GPU left"), 137);
  EXPECT_THAT(said_, HasSubstr("; this machine has 1 GPU left, and fewer ranks are not possible: --min-nproc is 2\n"));
}

}  // namespace
}  // namespace titan
