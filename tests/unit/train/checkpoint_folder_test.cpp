#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "train/run_folder.h"

namespace titan::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointFolder : public testing::Test {
 protected:
  static config::JobConfig job(const fs::path& dump, const std::string& checkpoints) {
    config::JobConfig config;
    config.job.dump_folder = dump;
    config.checkpoint.enable = true;
    config.checkpoint.folder = checkpoints;
    return config;
  }
  static std::string reason(const config::JobConfig& config) {
    return test::message_of<ConfigError>([&] { lock_checkpoint_folder(config); });
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path(), a_ = folder_ / "a", b_ = folder_ / "b", shared_ = folder_ / "shared";
};

TEST_F(CheckpointFolder, HoldsOneRunAtATime) {
  {
    const auto lock = lock_checkpoint_folder(job(a_, shared_));
    fs::create_directory_symlink(shared_, folder_ / "link");
    for (const fs::path& path : {shared_, fs::path("../b/../shared/"), folder_ / "link"})
      EXPECT_THAT(reason(job(b_, path)), AllOf(HasSubstr("checkpoint.folder = \"" + path.string() + "\": another run"),
                                               HasSubstr("saves in " + shared_.string() + ", and each")));
    try {
      lock_checkpoint_folder(job(b_, shared_));
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.keys(), ElementsAre("checkpoint.folder"));
    }
  }
  EXPECT_NE(lock_checkpoint_folder(job(b_, shared_)), nullptr);
  EXPECT_TRUE(fs::is_empty(shared_)) << "a lock has left a file";
}

TEST_F(CheckpointFolder, HoldsOneRunWhoseverDumpFolderItIsIn) {
  for (const char* inside : {"checkpoint", "", ".", "../a", "deep/er"}) {
    const auto dump_lock = lock_run_folder(a_);
    const auto lock = lock_checkpoint_folder(job(a_, inside));
    const fs::path folder = (a_ / inside).lexically_normal();
    EXPECT_THAT(reason(job(b_, folder)), HasSubstr("another run saves in " + a_.string())) << inside;
    EXPECT_THAT(reason(job(folder, ".")), HasSubstr("another run saves in " + a_.string())) << inside;
  }
  // The run whose dump folder it is starts second.
  const auto lock = lock_checkpoint_folder(job(b_, a_ / "checkpoint"));
  EXPECT_THAT(reason(job(a_, "checkpoint")), HasSubstr("another run saves in " + (a_ / "checkpoint").string()));
}

TEST_F(CheckpointFolder, DoesNotHoldWhatIsAroundOrBelowIt) {
  const auto lock = lock_checkpoint_folder(job(a_, shared_ / "mine"));
  for (const fs::path& path : {shared_, shared_ / "theirs", shared_ / "mine/theirs"})
    EXPECT_NO_THROW(lock_checkpoint_folder(job(b_, path))) << path;
}

TEST_F(CheckpointFolder, IsLockedOnOtherMachinesByASignOfLife) {
  const auto outside = lock_checkpoint_folder(job(a_, shared_));
  EXPECT_TRUE(fs::exists(shared_ / ".checkpoints.owner"));
  const auto inside = lock_checkpoint_folder(job(a_, "checkpoint"));
  EXPECT_TRUE(fs::is_empty(a_ / "checkpoint")) << "the lock of the dump folder says it already";
}

TEST_F(CheckpointFolder, IsLockedAnewOnceItIsAnother) {
  const auto first = lock_checkpoint_folder(job(a_, shared_));
  fs::remove_all(shared_);
  first->renew();
  EXPECT_THAT(reason(job(b_, shared_)), HasSubstr("another run saves"));
  fs::rename(shared_, folder_ / "moved");
  const auto second = lock_checkpoint_folder(job(b_, shared_));
  EXPECT_THAT(test::message_of<ConfigError>([&] { first->renew(); }),
              HasSubstr("another run saves in " + shared_.string()));
}

TEST_F(CheckpointFolder, IsNotTouchedByARunThatSavesNothing) {
  auto loads = job(b_, shared_);
  loads.checkpoint.load_only = true;
  EXPECT_EQ(lock_checkpoint_folder(loads), nullptr);
  loads.checkpoint.enable = false;
  EXPECT_EQ(lock_checkpoint_folder(loads), nullptr);
  EXPECT_FALSE(fs::exists(shared_));
}

TEST_F(CheckpointFolder, ThatCannotBeMadeIsLeftToTheFirstSave) {
  std::ofstream(folder_ / "file") << "in the way";
  const auto lock = lock_checkpoint_folder(job(a_, folder_ / "file" / "checkpoints"));
  EXPECT_NO_THROW(lock->renew());
}

}  // namespace
}  // namespace titan::train
