#include "base/process/file_lock.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/owner_file.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr OwnerFile::Times kQuick = {.beat = milliseconds(5), .stale = milliseconds(100)};

std::string refusal(const std::filesystem::path& path) {
  return test::message_of<ConfigError>([&] { const OwnerFile owner(path, "busy", kQuick); });
}

class OwnerFileTest : public ::testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / ".lock.owner"; }
  void write(const std::string& content) const { std::ofstream(path()) << content; }

  test::TemporaryFolder folder_;
};

TEST_F(OwnerFileTest, NamesItsProcessAndGoesAwayWithIt) {
  {
    const OwnerFile owner(path(), "busy", kQuick);
    const auto found = read_owner(path());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->pid, ::getpid());
    EXPECT_EQ(is_alive(*found), true);
    EXPECT_THAT(refusal(path()), HasSubstr("busy (process " + std::to_string(::getpid()) + " on "));
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// Takes over without waiting: processes of this node can be looked up by id.
TEST_F(OwnerFileTest, TakesOverFromADeadProcessOfThisNode) {
  const pid_t child = ::fork();
  if (child == 0) {
    const OwnerFile owner(path(), "busy", kQuick);
    ::_exit(0);  // like a killed process: no cleanup
  }
  ::waitpid(child, nullptr, 0);
  const auto dead = read_owner(path());
  ASSERT_TRUE(dead);
  EXPECT_EQ(is_alive(*dead), false);
  const OwnerFile owner(path(), "busy", OwnerFile::Times{.beat = milliseconds(5), .stale = std::chrono::hours(1)});
  EXPECT_EQ(read_owner(path())->pid, ::getpid());
}

// A reused process id belongs to another process.
TEST_F(OwnerFileTest, KnowsAProcessByItsStartToo) {
  std::optional<Owner> own;
  {
    const OwnerFile owner(path(), "busy", kQuick);
    own = read_owner(path());
  }
  own->start += "0";
  EXPECT_EQ(is_alive(*own), false);
}

TEST_F(OwnerFileTest, WaitsForASignOfLifeFromAnotherNode) {
  write("elsewhere/boot/1 7 1 000000000001 end\n");
  EXPECT_EQ(is_alive(*read_owner(path())), std::nullopt);
  EXPECT_EQ(refusal(path()), "no error");  // no sign of life came
  EXPECT_FALSE(std::filesystem::exists(path()));

  write("elsewhere/boot/1 7 1 000000000001 end\n");
  std::atomic<bool> stop = false;
  std::thread beats([&] {
    for (int beat = 2; !stop; ++beat) {
      write_file_atomically(path(), "elsewhere/boot/1 7 1 " + std::to_string(beat) + " end\n");
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  // One beat within `stale` is enough; `stale` is long because this thread may be delayed.
  const OwnerFile::Times patient{.beat = milliseconds(5), .stale = std::chrono::minutes(5)};
  EXPECT_THROW(OwnerFile(path(), "busy", patient), ConfigError);
  stop = true;
  beats.join();
  EXPECT_EQ(read_owner(path())->host, "elsewhere/boot/1");  // the other node keeps it
}

// Half a line, left by a process that was killed while writing it.
TEST_F(OwnerFileTest, TakesOverFromAFileThatNamesNobody) {
  write("elsewhe");
  EXPECT_EQ(refusal(path()), "no error");
}

TEST(FileLockTest, IsHeldAsLongAsItLives) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / ".lock";
  EXPECT_FALSE(is_locked(path));
  {
    const FileLock lock(path, "busy");
    EXPECT_TRUE(is_locked(path));
    EXPECT_THROW(FileLock(path, "busy"), ConfigError);
  }
  EXPECT_FALSE(is_locked(path));
  const FileLock again(path, "busy");
}

// The folder of a lock may be removed, moved or replaced while it is held; another process can lock it then.
TEST(FileLockTest, KnowsWhatBecameOfIt) {
  const test::TemporaryFolder folder;
  const auto held = folder.path() / "held", moved = folder.path() / "moved";
  std::filesystem::create_directory(held);
  const FileLock lock(held / ".lock", "busy");
  EXPECT_EQ(lock.fate(), "");
  std::filesystem::rename(held, moved);
  EXPECT_EQ(lock.fate(), "is gone");
  std::filesystem::create_directory(held);
  EXPECT_EQ(lock.fate(), "is gone");
  {
    std::ofstream(held / ".lock") << "";
    EXPECT_EQ(lock.fate(), "is another one now");
  }
  std::filesystem::remove_all(held);
  std::filesystem::rename(moved, held);
  EXPECT_EQ(lock.fate(), "");
}

TEST(FileLockTest, AnOwnerFileAloneKeepsOthersOut) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / ".lock";
  const FileLock lock(path, "busy");
  std::filesystem::remove(path);
  EXPECT_EQ(lock.fate(), "");
  EXPECT_THROW(FileLock(path, "busy"), ConfigError);
}

}  // namespace
}  // namespace titan
