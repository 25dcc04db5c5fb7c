#include "apps/launch/run_progress.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/fs.h"
#include "tests/support/temporary_folder.h"

namespace titan {
namespace {

class RunProgress : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(RunProgress, OnlyCompleteStepsAreSaved) {
  EXPECT_EQ(newest_saved_step(folder_ / "checkpoint"), 0);
  write("checkpoint/step-5/.metadata", "x");
  write("checkpoint/step-10/.metadata", "x");
  write("checkpoint/step-15/__0_0.distcp", "x");
  write("checkpoint/step-20.tmp/.metadata", "x");
  EXPECT_EQ(newest_saved_step(folder_ / "checkpoint"), 10);
}

TEST_F(RunProgress, RowsOfEarlierStartsDoNotCount) {
  EXPECT_EQ(last_step_since(folder_, 0), std::nullopt);
  write("metrics.jsonl", "{\"step\":1,\"unix_time\":100}\n{\"step\":2,\"unix_time\":110}\n{\"step\":3,\"uni");
  EXPECT_EQ(last_step_since(folder_, 105), 2);
  EXPECT_EQ(last_step_since(folder_, 111), std::nullopt);
}

TEST_F(RunProgress, OnlyTheEndOfALongFileIsRead) {
  std::string rows;
  while (rows.size() < (1 << 20)) rows += "{\"step\":1,\"unix_time\":100,\"loss\":8.25}\n";
  write("metrics.jsonl", rows + "{\"step\":7,\"unix_time\":100}\n");
  EXPECT_EQ(last_step_since(folder_, 100), 7);
}

TEST_F(RunProgress, TheStepOfAResumeIsKnown) {
  write("events.jsonl",
        "{\"step\":0,\"unix_time\":100,\"event\":\"start\"}\n{\"step\":30,\"unix_time\":200,\"event\":\"resume\"}\n"
        "{\"step\":35,\"unix_time\":210,\"event\":\"save\"}\n");
  EXPECT_EQ(resumed_step_since(folder_, 150), 30);
  EXPECT_EQ(resumed_step_since(folder_, 205), std::nullopt) << "this start made no step";
}

TEST_F(RunProgress, ARestartIsAnEventOnALineOfItsOwn) {
  write("events.jsonl", "{\"step\":0,\"event\":\"start\"}\n{\"step\":3,\"ev");  // cut by a crash
  EXPECT_EQ(append_event(folder_, {.start = 2,
                                   .exit_code = 137,
                                   .rank = 1,
                                   .reason = "rank 1 was \"ended\"",
                                   .reached = 37,
                                   .resumed_step = 35,
                                   .ranks = 2,
                                   .down_seconds = 0.5}),
            "");
  const std::string text = read_file(folder_ / "events.jsonl");
  const std::string before = "{\"step\":3,\"ev\n{\"step\":37,\"unix_time\":";
  ASSERT_NE(text.find(before), std::string::npos) << text;
  EXPECT_NE(text.find("\"event\":\"restart\",\"start\":2,\"exit_code\":137,\"rank\":1,\"reason\":\"rank 1 was "
                      "\\\"ended\\\"\",\"resumed_step\":35,\"lost_steps\":2,\"ranks\":2,\"down_seconds\":0.5"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("}\n"));
}

TEST_F(RunProgress, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_EQ(append_event(folder_ / "missing", {}),
            (folder_ / "missing/events.jsonl").string() + ": No such file or directory");
}

}  // namespace
}  // namespace titan
