// Tests entries of evaluation.tasks.
#include "config/keys/values/evaluation_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace titan::config {
namespace {

TaskEntry task(const std::string& text, std::int64_t num_fewshot = 0) {
  return parse_task_entries({text}, num_fewshot).front();
}

TEST(EvaluationTasks, PathsMayHaveBlanks) {
  const TaskEntry entry = task("easy=ARC /data/my files/a b.jsonl fewshot=25:/data/my files/solved.jsonl");
  EXPECT_EQ(entry.name, "easy");
  EXPECT_EQ(entry.kind, "arc");
  EXPECT_EQ(entry.path, "/data/my files/a b.jsonl");
  EXPECT_EQ(entry.examples, "/data/my files/solved.jsonl");
  EXPECT_EQ(entry.num_fewshot, 25);
}

TEST(EvaluationTasks, ThereIsOneNumberForTasksWithoutTheirOwn) {
  const auto entries = parse_task_entries(
      {"mmlu test fewshot=dev", "arc a fewshot=25:b", "text t", "choice c fewshot=2024/solved:1.jsonl"}, 5);
  EXPECT_EQ(entries[0].num_fewshot, 5);
  EXPECT_EQ(entries[1].num_fewshot, 25);
  EXPECT_EQ(entries[2].num_fewshot, 0);
  EXPECT_EQ(entries[3].num_fewshot, 5);
  EXPECT_EQ(entries[3].examples, "2024/solved:1.jsonl");
}

TEST(EvaluationTasks, AreNamedByTheFlagsOfACommand) {
  EXPECT_THAT(
      [] {
        parse_task_entries({"arc a"}, 5, {"--task", "--num-fewshot"});
      },
      ::testing::ThrowsMessage<ConfigError>(
          ::testing::HasSubstr("--task: \"arc a\" has no file of solved questions, of which --num-fewshot puts 5")));
}

}  // namespace
}  // namespace titan::config
