// Tests the folder of a run's copies in memory: whose it is, what is left of it, and when there is no room.
#include "checkpoint/memory_copies.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "base/error.h"
#include "base/run_layout.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/dcp/step_folders.h"
#include "tests/unit/checkpoint/copies/tiny_state.h"
#include "tests/unit/checkpoint/thread_ranks.h"

namespace titan::checkpoint {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names_below(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void make_step(const fs::path& base, int step) {
  fs::create_directories(step_folder(base, step));
  std::ofstream(step_folder(base, step) / layout::kMetadataFile) << "x";
}

class MemoryCopiesTest : public ::testing::Test {
 protected:
  fs::path make() const { return make_copies_folder(memory_, base_); }

  TemporaryFolder folder_;
  fs::path memory_ = folder_ / "memory", base_ = folder_ / "run/checkpoint";
};

TEST_F(MemoryCopiesTest, ARunFindsItsOwnFolderAlone) {
  EXPECT_TRUE(find_copies(memory_, base_).empty());
  const fs::path copies = make();
  EXPECT_EQ(make(), copies);
  EXPECT_EQ(find_copies(memory_, base_), copies);
  EXPECT_TRUE(find_copies("", base_).empty());
  EXPECT_EQ(fs::status(copies).permissions(), fs::perms::owner_all);
  EXPECT_TRUE(find_copies(memory_, folder_ / "other").empty());

  fs::copy(folder_ / "run", folder_ / "twin", fs::copy_options::recursive);
  EXPECT_TRUE(find_copies(memory_, folder_ / "twin/checkpoint").empty());
  EXPECT_NE(make_copies_folder(memory_, folder_ / "twin/checkpoint"), copies);
  fs::rename(folder_ / "run", folder_ / "moved");
  EXPECT_EQ(find_copies(memory_, folder_ / "moved/checkpoint"), copies);
  EXPECT_NE(make(), copies) << "a run that begins anew has found the copies of the one before";
}

TEST_F(MemoryCopiesTest, WhatIsNotAnOwnFolderOrAnIdIsNoCopy) {
  const fs::path copies = make();
  fs::rename(copies, folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", copies);
  EXPECT_TRUE(find_copies(memory_, base_).empty());
  EXPECT_THROW(make(), CheckpointError);
  std::ofstream(base_ / kRunIdFile) << "../../../somewhere";
  EXPECT_TRUE(find_copies(memory_, base_).empty());
  EXPECT_NE(make(), copies);
}

TEST_F(MemoryCopiesTest, ThereAreTwoWhileOneIsWritten) {
  const fs::path copies = make();
  for (const int step : {2, 4, 6}) make_step(copies, step);
  fs::create_directories(copies / "step-8.tmp");
  make_place(copies);
  EXPECT_EQ(steps_in(copies), std::vector<int>{6});
  EXPECT_FALSE(fs::exists(copies / "step-8.tmp"));
}

TEST_F(MemoryCopiesTest, OnlyWhatACheckpointHoldsIsRemoved) {
  const fs::path copies = make();
  for (const int step : {4, 6}) make_step(copies, step);
  make_step(base_, 5);
  remove_outdated_copies(copies, base_);
  EXPECT_EQ(steps_in(copies), (std::vector<int>{4, 6}));
  fs::create_directories(step_folder(base_, 8));  // not complete
  remove_outdated_copies(copies, base_);
  EXPECT_EQ(steps_in(copies), (std::vector<int>{4, 6}));
  remove_copies_after(copies, 5);
  EXPECT_EQ(steps_in(copies), std::vector<int>{4});
  remove_outdated_copies(copies, base_);
  EXPECT_TRUE(names_below(memory_).empty());
}

TEST_F(MemoryCopiesTest, SomeRoomIsLeftToOthers) {
  const auto fits = [](std::uintmax_t capacity, std::uintmax_t available, std::uint64_t bytes) {
    try {
      check_room_for_copy("/dev/shm/x", {.capacity = capacity, .free = available, .available = available}, bytes);
    } catch (const CheckpointError&) {
      return false;
    }
    return true;
  };
  constexpr std::uintmax_t kGiB = std::uintmax_t{1} << 30, kMiB = std::uintmax_t{1} << 20;
  EXPECT_TRUE(fits(kGiB, 164 * kMiB, 100 * kMiB));
  EXPECT_FALSE(fits(kGiB, 163 * kMiB, 100 * kMiB));
  EXPECT_TRUE(fits(64 * kMiB, 18 * kMiB, 10 * kMiB));  // a container's
  EXPECT_FALSE(fits(64 * kMiB, 7 * kMiB, 0));
  EXPECT_TRUE(fits(0, 0, kGiB));  // ramfs does not say
}

// A run that ends early goes on from the newest of both places, and a diverged one goes back to it.
TEST_F(MemoryCopiesTest, CountAsCheckpoints) {
  config::Checkpoint with;
  with.enable = true;
  with.interval = 5;
  with.memory_interval = 2;
  with.last_save_model_only = false;
  RunFacts run;
  run.base = base_;
  run.memory_folder = memory_;
  TinyState state;
  ThreadRanks::Shared shared{1};
  ThreadRanks ranks(0, shared);
  const auto train_to = [&](int last, bool diverges = false) {
    state = TinyState();
    ThreadRanks::Shared own{1};
    ThreadRanks background(0, own);
    Checkpointer checkpointer(with, run, ranks, state, &background);
    const int start = checkpointer.load().step.value_or(-1);
    while (state.step < last) {
      checkpointer.wait_staged();
      state.advance();
      const int step = static_cast<int>(state.step);
      if (!checkpointer.save(step, 20) && checkpointer.should_copy(step, 20)) checkpointer.copy_to_memory(step);
      EXPECT_FALSE(checkpointer.is_saving());
    }
    if (diverges) {
      state.weight.fill_(0);
      checkpointer.finish();
      EXPECT_EQ(fs::path(checkpointer.newest_good()).filename(), "step-" + std::to_string(last / 2 * 2));
      EXPECT_EQ(checkpointer.roll_back(), last / 2 * 2);
      EXPECT_EQ(state.weight[0][0].item<float>(), static_cast<float>(last / 2 * 2));
    }
    checkpointer.finish();
    if (last == 20) checkpointer.remove_copies();
    return start;
  };
  EXPECT_EQ(train_to(3), -1);
  EXPECT_EQ(train_to(5), 2);
  EXPECT_EQ(train_to(7), 5) << "the checkpoint is newer than the copy of step 4";
  EXPECT_EQ(train_to(9, /*diverges=*/true), 6);
  EXPECT_EQ(names_below(base_), (std::set<std::string>{"run_id", "step-5"}));
  fs::remove(find_copies(memory_, base_) / "step-8" / "__0_0.distcp");
  EXPECT_EQ(train_to(9), 6) << "a damaged copy is passed over";
  with.load_step = 5;
  EXPECT_EQ(train_to(5), 5);
  with.load_step = -1;
  EXPECT_EQ(train_to(20), 5) << "copies of steps after load_step are of a past that was given up";
  EXPECT_TRUE(fs::is_empty(memory_));
  EXPECT_EQ(train_to(20), 20);
}

TEST_F(MemoryCopiesTest, NamesAFileSystemThatIsNotInMemory) {
  EXPECT_EQ(file_system_on_disk("/proc/none/below"), "of type 0x9fa0");
}

}  // namespace
}  // namespace titan::checkpoint
