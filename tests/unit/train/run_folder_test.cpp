#include "train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class RunFolder : public testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(RunFolder, HoldsOneRunAtATime) {
  const std::string dump = folder_ / "made" / "here";
  const auto lock_again = [&] { lock_run_folder(dump); };
  {
    const auto lock = lock_run_folder(dump);
    EXPECT_TRUE(is_locked(fs::path(dump) / ".run.lock"));
    EXPECT_THAT(test::message_of<ConfigError>(lock_again),
                AllOf(HasSubstr("error: job.dump_folder = \"" + dump + "\": another run writes there"),
                      HasSubstr("start them with torchrun or --nproc")));
  }
  EXPECT_NO_THROW(lock_again());
}

TEST_F(RunFolder, SaysWhyItCannotBeMade) {
  std::ofstream(folder_ / "file") << "in the way";
  const std::string dump = folder_ / "file" / "run";
  EXPECT_THAT(
      test::message_of<ConfigError>([&] { lock_run_folder(dump); }),
      AllOf(HasSubstr("error: job.dump_folder = \"" + dump + "\" cannot be made: "), HasSubstr("; choose another")));
}

}  // namespace
}  // namespace titan::train
