#include "checkpoint/checkpointer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/torchtitan_keys.h"
#include "tests/support/hand_clock.h"
#include "tests/unit/checkpoint/copies/tiny_state.h"
#include "tests/unit/checkpoint/sharded_items.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// The [checkpoint] table of a small run, plus the facts about the run that a checkpointer needs.
struct Options : config::Checkpoint {
  RunFacts run;
};

class CheckpointerTest : public ::testing::Test {
 protected:
  Options options() const {
    Options result;
    result.enable = true;
    result.run.base = base_;
    result.interval = 2;
    result.last_save_model_only = false;
    return result;
  }
  // Trains to `last` from what load() gives. Returns the step it started from, or -1.
  int train(const Options& with, int last, int dp_size = 1) {
    state_ = TinyState(dp_size);
    ThreadRanks::Shared own{1};
    ThreadRanks background(0, own);
    Checkpointer checkpointer(with, with.run, ranks_, state_, &background);
    if (keep_rule_) checkpointer.set_keep_rule(keep_rule_);
    const std::optional<int> start = checkpointer.load().step;
    for (int step = start.value_or(0) + 1; step <= last; ++step) {
      checkpointer.wait_staged();
      state_.advance();
      checkpointer.save(step, last);
    }
    checkpointer.finish();
    return start.value_or(-1);
  }
  std::string train_error(const Options& with, int dp_size = 1) {
    try {
      train(with, 100, dp_size);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::set<std::string> folders() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(base_)) names.insert(entry.path().filename());
    return names;
  }

  TemporaryFolder folder_;
  fs::path base_ = folder_ / "checkpoint";
  ThreadRanks::Shared shared_{1};
  ThreadRanks ranks_{0, shared_};
  TinyState state_;
  KeepRule keep_rule_;
};

TEST_F(CheckpointerTest, SavesAtIntervalsAndResumesAtTheNewest) {
  EXPECT_EQ(train(options(), 5), -1);
  EXPECT_EQ(folders(), (std::set<std::string>{"step-2", "step-4", "step-5"}));
  EXPECT_EQ(train(options(), 8), 5);
  EXPECT_EQ(state_.weight[0][0].item<float>(), 8);
  EXPECT_EQ(state_.step, 8);
  auto older = options();
  older.load_step = 4;
  EXPECT_EQ(train(older, 4), 4);
  EXPECT_EQ(state_.weight[3][1].item<float>(), 4);
}

TEST_F(CheckpointerTest, SavesWhenTimeHasPassed) {
  test::HandClock time;
  auto with = options();
  with.run.now = time.clock();
  with.interval = 1000;
  const Checkpointer never(with, with.run, ranks_, state_);
  with.interval_minutes = 0.5;
  Checkpointer checkpointer(with, with.run, ranks_, state_);
  EXPECT_FALSE(checkpointer.is_time_due());
  EXPECT_FALSE(checkpointer.save(1, 100, false));
  time.advance(29s);
  EXPECT_FALSE(checkpointer.is_time_due());
  time.advance(1s);
  EXPECT_TRUE(checkpointer.is_time_due());
  EXPECT_TRUE(checkpointer.save(2, 100, true));
  EXPECT_FALSE(checkpointer.is_time_due()) << "the interval starts anew with a save";
  EXPECT_EQ(folders(), (std::set<std::string>{"step-2"}));
  time.advance(20s);
  checkpointer.save_full(3);
  time.advance(29s);
  EXPECT_FALSE(checkpointer.is_time_due()) << "and with one that a signal asked for";
  time.advance(1s);
  EXPECT_TRUE(checkpointer.is_time_due());
  EXPECT_FALSE(never.is_time_due());
  with.load_only = true;
  const Checkpointer reader(with, with.run, ranks_, state_);
  time.advance(1h);
  EXPECT_FALSE(reader.is_time_due());
}

TEST_F(CheckpointerTest, KeepsTheLatestAsTorchTitanDoes) {
  auto with = options();
  with.interval = 1;
  with.keep_latest_k = 2;
  with.enable_first_step_checkpoint = true;
  train(with, 6);
  EXPECT_EQ(folders(), (std::set<std::string>{"step-4", "step-5", "step-6"}));
}

TEST_F(CheckpointerTest, SavesBesideTrainingWhatItSavesOtherwise) {
  auto with = options();
  with.async_mode = "async";
  with.interval = 1;
  with.keep_latest_k = 2;
  EXPECT_EQ(train(with, 6), -1);
  EXPECT_EQ(folders(), (std::set<std::string>{"step-4", "step-5", "step-6"}));
  for (const int step : {4, 5, 6}) {
    auto at = options();
    at.load_step = step;
    EXPECT_EQ(train(at, step), step);
    EXPECT_EQ(state_.weight[0][0].item<float>(), step) << "a later step's weights got in";
  }
}

TEST_F(CheckpointerTest, AFailedSaveStopsTheRunOrIsAWarning) {
  for (const bool async : {false, true}) {
    for (const bool stops : {true, false}) {
      auto with = options();
      if (async) with.async_mode = "async";
      with.on_save_error = stops ? "stop" : "warn";
      ThreadRanks::Shared own{1};
      ThreadRanks background(0, own);
      Checkpointer checkpointer(with, with.run, ranks_, state_, &background);
      checkpointer.save(2, 100);
      checkpointer.finish();
      fs::rename(base_, folder_ / "aside");
      std::ofstream(base_) << "a file where the folder has to be";
      const auto save_and_wait = [&] {
        checkpointer.save(4, 100);
        checkpointer.finish();
      };
      if (stops) {
        EXPECT_THROW(save_and_wait(), CheckpointError) << async;
      } else {
        EXPECT_NO_THROW(save_and_wait()) << async;
      }
      fs::remove(base_);
      fs::rename(folder_ / "aside", base_);
      checkpointer.save(6, 100);
      checkpointer.finish();
      EXPECT_EQ(folders(), (std::set<std::string>{"step-2", "step-6"})) << async << stops;
      fs::remove_all(base_);
    }
  }
}

TEST_F(CheckpointerTest, AFolderThatIsNotTheRunsAnyMoreIsLeftAlone) {
  for (const bool async : {false, true}) {
    auto with = options();
    with.async_mode = async ? "async" : "disabled";
    train(with, 2);
    fs::create_directory(base_ / "step-4.tmp");  // of another run
    with.run.check_base = [] { throw Error("the folder is another run's", kExitFailed); };
    EXPECT_THAT(train_error(with), HasSubstr("step-4 failed: the folder is another run's"));
    EXPECT_EQ(folders(), (std::set<std::string>{"step-2", "step-4.tmp"}));
    fs::remove_all(base_);
  }
}

TEST_F(CheckpointerTest, FallsBackToTheNewestIntactOne) {
  train(options(), 8);
  // One with a flipped bit in its data, one without its data, one with a cut .metadata.
  const auto flip = [&](const fs::path& file, std::streamoff at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(at);
    stream.put(byte);
  };
  const std::string data = read_file(base_ / "step-8/__0_0.distcp");
  const float weight = 8;
  const auto payload = data.find(std::string(reinterpret_cast<const char*>(&weight), 4) +
                                 std::string(reinterpret_cast<const char*>(&weight), 4));
  ASSERT_NE(payload, std::string::npos);
  flip(base_ / "step-8/__0_0.distcp", static_cast<std::streamoff>(payload));
  fs::remove(base_ / "step-6/__0_0.distcp");
  fs::resize_file(base_ / "step-4/.metadata", 100);
  auto named = options();
  named.load_step = 8;
  EXPECT_THAT(train_error(named), HasSubstr("checksum"));
  EXPECT_EQ(train(options(), 3), 2);
  EXPECT_EQ(state_.weight[0][0].item<float>(), 3);
  fs::remove_all(base_ / "step-2");
  fs::remove_all(base_ / "step-3");
  EXPECT_THAT(train_error(options()), HasSubstr("step-8, step-6, step-4"));
}

// A link whose target the system cannot look up stands for a disk that does not answer.
void make_unreadable(const fs::path& file) {
  fs::remove(file);
  fs::create_symlink(std::string(300, 'x'), file);
}

TEST_F(CheckpointerTest, WhatCannotBeReadIsNeverPassedOverForAnOlderOne) {
  train(options(), 6);
  fs::copy(base_ / "step-6", folder_ / "good", fs::copy_options::recursive);
  for (const char* name : {"__0_0.distcp", ".metadata", "titan.checksums.json"}) {
    make_unreadable(base_ / "step-6" / name);
    EXPECT_THAT(train_error(options()), AllOf(HasSubstr(name), HasSubstr("the checkpoint may be whole")));
    EXPECT_TRUE(fs::is_symlink(base_ / "step-6" / name));
    fs::remove_all(base_ / "step-6");
    fs::copy(folder_ / "good", base_ / "step-6", fs::copy_options::recursive);
  }
  make_unreadable(base_ / "step-4/.metadata");
  EXPECT_EQ(train(options(), 7), 6) << "an older one does not matter";
  auto named = options();
  named.load_step = 4;
  EXPECT_THAT(train_error(named), HasSubstr("File name too long"));
}

TEST_F(CheckpointerTest, PassesOverWhatIsNotAFolder) {
  train(options(), 4);
  fs::create_symlink("step-13", base_ / "step-13");
  fs::create_symlink("step-6", base_ / "step-6");
  std::ofstream(base_ / "step-15") << "mine";
  fs::create_directories(base_ / "step-8/.metadata");
  EXPECT_EQ(steps_in(base_), (std::vector<int>{2, 4, 8}));
  EXPECT_EQ(step_entries(base_).others, (std::vector<int>{6, 13, 15}));
  EXPECT_EQ(train(options(), 6), 4);
  EXPECT_EQ(train(options(), 7), 6) << "the link was not replaced by the save";
}

TEST_F(CheckpointerTest, KeepsWhatTheRuleNames) {
  auto with = options();
  with.interval = 1;
  with.keep_latest_k = 2;
  std::vector<int> asked;
  keep_rule_ = [&](const std::vector<int>& steps) -> std::optional<int> {
    asked = steps;
    if (steps.back() < 5) return steps.front();  // step 1, until 5 is better
    return 5;
  };
  train(with, 5);
  EXPECT_EQ(asked, (std::vector<int>{1, 2, 3, 4}));  // before the removal of step 2
  EXPECT_EQ(folders(), (std::set<std::string>{"step-1", "step-3", "step-4", "step-5"}));
  train(with, 9);
  EXPECT_EQ(folders(), (std::set<std::string>{"step-5", "step-7", "step-8", "step-9"}));
}

// From step 3 on the weights are not finite. These saves are removed as usual, but step 2 stays.
TEST_F(CheckpointerTest, TheLastGoodOneStays) {
  for (const char* mode : {"disabled", "async"}) {
    fs::remove_all(base_);
    auto with = options();
    with.interval = 1;
    with.keep_latest_k = 2;
    with.async_mode = mode;
    state_ = TinyState();
    ThreadRanks::Shared own{1};
    ThreadRanks background(0, own);
    Checkpointer checkpointer(with, with.run, ranks_, state_, &background);
    for (int step = 1; step <= 6; ++step) {
      checkpointer.wait_staged();
      state_.advance();
      if (step == 3) checkpointer.mark_not_finite();
      checkpointer.save(step, 100);
    }
    checkpointer.finish();
    EXPECT_EQ(folders(), (std::set<std::string>{"step-2", "step-5", "step-6"})) << mode;
    EXPECT_TRUE(is_of_numbers(base_ / "step-2"));
    EXPECT_FALSE(is_of_numbers(base_ / "step-5"));
    // A process that knows nothing of the run keeps it too: it decides by the files in the folder.
    remove_old_steps(base_, 1, {});
    EXPECT_EQ(folders(), (std::set<std::string>{"step-2", "step-6"})) << mode;
    EXPECT_EQ(checkpointer.roll_back(), 2) << "and a run goes back to it";
    EXPECT_EQ(train(with, 6), 6) << "a resume takes the newest";
  }
}

// Restores all but the data position and ignores exclude_from_loading; works during a save and past a damaged one.
TEST_F(CheckpointerTest, RollsBackToTheNewestIntactOne) {
  auto with = options();
  with.async_mode = "async";
  with.exclude_from_loading = {"model"};
  state_ = TinyState();
  ThreadRanks::Shared own{1};
  ThreadRanks background(0, own);
  Checkpointer checkpointer(with, with.run, ranks_, state_, &background);
  EXPECT_EQ(checkpointer.roll_back(), std::nullopt);
  const auto train_to = [&](int last) {
    while (state_.step < last) {
      checkpointer.wait_staged();
      state_.advance();
      checkpointer.save(static_cast<int>(state_.step), 100);
    }
  };
  train_to(7);
  EXPECT_EQ(checkpointer.roll_back(), 6);
  EXPECT_EQ(state_.step, 6);
  EXPECT_EQ(state_.weight[0][0].item<float>(), 6);
  EXPECT_TRUE(state_.last_values.contains("lr_scheduler.base_lrs"));
  EXPECT_FALSE(state_.last_values.contains("dataloader.dp_rank_0"));
  train_to(9);
  checkpointer.finish();
  fs::resize_file(base_ / "step-8" / "__0_0.distcp", 10);
  EXPECT_EQ(checkpointer.roll_back(), 6);
  EXPECT_EQ(state_.weight[3][1].item<float>(), 6);
}

TEST_F(CheckpointerTest, UnfinishedFoldersNeverCount) {
  train(options(), 4);
  fs::create_directories(base_ / "step-9.tmp");
  fs::create_directories(base_ / "step-8");  // no .metadata
  fs::copy(base_ / "step-4", base_ / "step-77_backup");
  EXPECT_EQ(train(options(), 6), 4);
  EXPECT_FALSE(folders().contains("step-9.tmp"));
  EXPECT_TRUE(folders().contains("step-77_backup"));
}

TEST_F(CheckpointerTest, NeverAFreshStartOverARun) {
  fs::create_directories(base_ / "step-3");
  EXPECT_THAT(train_error(options()), HasSubstr("holds step-3, but none of them is complete"));
  fs::remove_all(base_);
  train(options(), 4);
  auto with = options();
  with.load_step = 3;
  EXPECT_THAT(train_error(with), HasSubstr("it has step-2, step-4"));
}

TEST_F(CheckpointerTest, AFinishedModelOnlyRunIsAnErrorOrFallsBack) {
  auto with = options();
  with.last_save_model_only = true;
  train(with, 5);
  EXPECT_EQ(train(with, 5), 4);  // step-5 is model-only again, step-4 full
  fs::remove_all(base_ / "step-2");
  fs::remove_all(base_ / "step-4");
  const std::string error = train_error(with);
  EXPECT_THAT(error, HasSubstr("checkpoint.last_save_model_only = false"));
  EXPECT_THAT(error, HasSubstr("checkpoint.initial_load_path"));
}

TEST_F(CheckpointerTest, InitialLoadGivesWayToTheRunsOwn) {
  train(options(), 4);
  auto other = options();
  other.run.base = folder_ / "second";
  other.initial_load_path = (base_ / "step-4").string();
  EXPECT_EQ(train(other, 2), 0);
  EXPECT_EQ(train(other, 2), 2);
  other.run.base = folder_ / "third";
  other.initial_load_model_only = false;
  EXPECT_EQ(train(other, 4), 4);
  other.run.base = folder_ / "fourth";
  other.initial_load_path = base_.string();
  EXPECT_THAT(train_error(other), HasSubstr("name one, the newest is " + (base_ / "step-4").string()));
}

TEST_F(CheckpointerTest, SeedLoadsTheModelOnly) {
  auto with = options();
  with.create_seed_checkpoint = true;
  state_.weight.fill_(42);
  Checkpointer(with, with.run, ranks_, state_).save_seed();
  with.create_seed_checkpoint = false;
  EXPECT_EQ(train(with, 0), 0);
  EXPECT_EQ(state_.weight[0][0].item<float>(), 42);
  EXPECT_TRUE(state_.last_values.empty());
}

TEST_F(CheckpointerTest, WhatDoesNotFitIsRefusedUnlessExcluded) {
  train(options(), 2);
  EXPECT_THAT(train_error(options(), 3),
              AllOf(HasSubstr("step-2 cannot be resumed"), HasSubstr("the data is of other ranks")));
  EXPECT_EQ(state_.weight[0][0].item<float>(), 0) << "something was loaded before the check";
  auto with = options();
  with.exclude_from_loading = {"dataloader", "lr_scheduler"};
  EXPECT_EQ(train(with, 2, 3), 2);
  EXPECT_FALSE(state_.last_values.contains("dataloader.dp_rank_0"));
  EXPECT_FALSE(state_.last_values.contains("lr_scheduler.last_epoch"));
  EXPECT_TRUE(state_.last_values.contains("train_state.step"));
}

TEST_F(CheckpointerTest, ReadsOnlyWhereNothingIsToBeSaved) {
  auto with = options();
  with.load_only = true;
  train(with, 4);
  EXPECT_FALSE(fs::exists(base_));
}

}  // namespace
}  // namespace titan::checkpoint
