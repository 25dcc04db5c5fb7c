#include "metrics/tensorboard/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/fs.h"
#include "metrics/tensorboard/event.h"
#include "tests/support/memory_folder.h"
#include "tests/support/temporary_folder.h"

namespace titan::metrics::tensorboard {
namespace {

namespace fs = std::filesystem;

// RFC 3720, section B.4.
TEST(EventFile, ChecksumsAreCastagnolis) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
}

// Bytes of the protocol buffer's own library and TensorFlow's writer for wall_time = 1.5, step = 300 and a scalar "a" =
// 2.
TEST(EventFile, EncodesAsProtocolBuffersDo) {
  EventEncoder encoder;
  const std::string event(encoder.scalars({1.5, 300}, {{"a", 2.0F}}));
  const std::string expected(
      "\x09\x00\x00\x00\x00\x00\x00\xF8\x3F\x10\xAC\x02\x2A\x0A\x0A\x08\x0A\x01\x61\x15\x00\x00\x00\x40", 24);
  EXPECT_EQ(event, expected);
  EXPECT_EQ(step_of_event(event), 300);
  std::string framed;
  frame(event, framed);
  EXPECT_EQ(framed.size(), event.size() + 16);
  EXPECT_EQ(framed.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(framed.substr(12, event.size()), event);
}

TEST(EventFile, StepsAreRead) {
  EventEncoder encoder;
  EXPECT_EQ(step_of_event(encoder.version(1)), 0);
  EXPECT_EQ(step_of_event(encoder.text({1, 7}, "config", "text")), 7);
  EXPECT_EQ(step_of_event(encoder.histogram({1, std::int64_t{1} << 40}, "h", {})), std::int64_t{1} << 40);
  EXPECT_EQ(step_of_event(encoder.restart({1, 8})), 8);
  for (const char* bad :
       {"\x0A", "\x0A\x05zz", "\x09zz", "\xFF", "\x13", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"})
    EXPECT_EQ(step_of_event(bad), std::nullopt);
}

class EventFolder : public ::testing::Test {
 protected:
  // Returns the bytes of an event with only a loss.
  std::string_view loss_at(std::int64_t step) {
    return encoder_.scalars({1000.0 + static_cast<double>(step), step}, {{"loss", 1.0F}});
  }

  EventEncoder encoder_;
  const test::TemporaryFolder temporary_{test::memory_folder()};
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(EventFolder, KeepsWhatIsNotRunAgain) {
  const fs::path folder = folder_ / "tb";
  std::string kept;
  fs::path first, second;
  {
    EventFile file(folder, 1000);
    first = file.path();
    for (int step = 1; step <= 3; ++step) file.append(loss_at(step));
    kept = read_file(first);
    for (int step = 4; step <= 6; ++step) file.append(loss_at(step));
    EventFile other(folder, 1000);  // in the same second
    second = other.path();
    other.append(loss_at(5));
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(cut_events_after(folder, 6), 0);
  EXPECT_EQ(cut_events_after(folder, 3), 2);
  EXPECT_EQ(read_file(first), kept);
  EXPECT_FALSE(fs::exists(second)) << "nothing of it counts any more";
  EXPECT_EQ(cut_events_after(folder_ / "none", 3), 0);
  EXPECT_EQ(cut_events_after(folder, 0), 1);
  EXPECT_TRUE(fs::is_empty(folder)) << "a run that begins anew has no earlier events";
}

TEST_F(EventFolder, KeepsTheFilesOfOtherRuns) {
  fs::path own, others;
  {
    EventFile file(folder_, 1000, ".run-1"), other(folder_, 1000, ".run-2");
    own = file.path(), others = other.path();
    for (EventFile* each : {&file, &other}) each->append(loss_at(1));
  }
  fs::create_symlink(folder_ / "events.out.tfevents.loop.run-1", folder_ / "events.out.tfevents.loop.run-1");
  const std::string kept = read_file(others);
  EXPECT_EQ(cut_events_after(folder_, 0, ".run-1"), 1);
  EXPECT_FALSE(fs::exists(own));
  EXPECT_EQ(cut_events_after(folder_, 0), 0) << "the run whose own folder this is";
  EXPECT_EQ(read_file(others), kept);
  write_file_atomically(folder_ / "events.out.tfevents.1000.host.run-1.7.0", kept);
  EXPECT_EQ(cut_events_after(folder_, 0), 1) << "the mark is in the host's name";
}

TEST_F(EventFolder, CutsWhatACrashLeft) {
  fs::path path;
  {
    EventFile file(folder_, 1000);
    path = file.path();
    for (int step = 1; step <= 2; ++step) file.append(loss_at(step));
  }
  const std::string whole = read_file(path);
  std::string framed;
  frame(loss_at(2), framed);
  const std::size_t last = whole.size() - framed.size();
  for (const std::size_t size : {whole.size() - 1, last + 1, last + 12, last + 13}) {
    write_file_atomically(path, whole.substr(0, size));
    EXPECT_EQ(cut_events_after(folder_, 10), 1) << size;
    EXPECT_EQ(read_file(path), whole.substr(0, last)) << size;
  }
  for (const std::size_t at : {last, last + 8, last + 14, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file_atomically(path, damaged);
    EXPECT_EQ(cut_events_after(folder_, 10), 1) << at;
    EXPECT_EQ(read_file(path), whole.substr(0, last)) << at;
  }
  std::ofstream(folder_ / "other.txt") << "not an event";
  EXPECT_EQ(cut_events_after(folder_, 10), 0);
  EXPECT_EQ(read_file(folder_ / "other.txt"), "not an event");
}

}  // namespace
}  // namespace titan::metrics::tensorboard
