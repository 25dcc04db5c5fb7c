#include "base/fs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan {
namespace {

namespace stdfs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Fs : public ::testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(Fs, ReadsBackEveryByte) {
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes.push_back(static_cast<char>(i));
  write_file_atomically(folder_ / "f", bytes);
  EXPECT_EQ(read_file(folder_ / "f"), bytes);
}

TEST_F(Fs, ReplacesAndLeavesNoTemporaryFile) {
  write_file_atomically(folder_ / "f", "a longer first content");
  write_file_atomically(folder_ / "f", "second");
  EXPECT_EQ(read_file(folder_ / "f"), "second");
  EXPECT_EQ(std::distance(stdfs::directory_iterator(folder_), stdfs::directory_iterator()), 1);
}

TEST_F(Fs, LeftoverOfACrashIsOverwritten) {
  std::ofstream(folder_ / "f.tmp") << "half of a file that is longer than the next";
  write_file_atomically(folder_ / "f", "whole");
  EXPECT_EQ(read_file(folder_ / "f"), "whole");
}

TEST_F(Fs, BareFileNameGoesToTheWorkingFolder) {
  const stdfs::path before = stdfs::current_path();
  stdfs::current_path(folder_);
  write_file_atomically("bare", "x");
  stdfs::current_path(before);
  EXPECT_EQ(read_file(folder_ / "bare"), "x");
}

TEST_F(Fs, MissingFileIsADataErrorThatNamesPathAndReason) {
  const std::string message = test::message_of<DataError>([&] { read_file(folder_ / "absent"); });
  EXPECT_THAT(message, HasSubstr((folder_ / "absent").string()));
  EXPECT_THAT(message, HasSubstr("No such file"));
}

TEST_F(Fs, DirectoryIsADataError) {
  EXPECT_THAT(test::message_of<DataError>([&] { read_file(folder_); }), HasSubstr("is a directory"));
}

TEST_F(Fs, WriteIntoAMissingFolderNamesThePath) {
  const std::string message =
      test::message_of<std::system_error>([&] { write_file_atomically(folder_ / "absent" / "f", "x"); });
  EXPECT_THAT(message, HasSubstr((folder_ / "absent" / "f").string()));
}

TEST_F(Fs, FsyncOfAMissingFolderNamesThePath) {
  EXPECT_THAT(test::message_of<std::system_error>([&] { fsync_folder(folder_ / "absent"); }), HasSubstr("absent"));
}

// A write that fails midway (the size limit stands for a full disk) throws and leaves the old content in place.
TEST_F(Fs, FailedWriteKeepsTheOldContent) {
  write_file_atomically(folder_ / "f", "old");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomically(folder_ / "f", std::string(100'000, 'n'));
    } catch (const std::system_error& error) {
      _exit(error.code() == std::errc::file_too_large ? 0 : 2);
    }
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_EQ(read_file(folder_ / "f"), "old");
}

// A process killed at any moment leaves the old bytes or the new ones under the name, never a mixture.
TEST_F(Fs, KilledWriterLeavesOldOrNew) {
  const std::string a(300'000, 'a'), b(200'000, 'b');
  write_file_atomically(folder_ / "f", a);
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      while (true) {
        write_file_atomically(folder_ / "f", b);
        write_file_atomically(folder_ / "f", a);
      }
    }
    usleep(3000 + 1700 * static_cast<useconds_t>(round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::string content = read_file(folder_ / "f");
    EXPECT_TRUE(content == a || content == b) << "round " << round << ": " << content.size() << " bytes";
  }
}

}  // namespace
}  // namespace titan
