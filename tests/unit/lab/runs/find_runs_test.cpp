#include "lab/runs/find_runs.h"

#include <gmock/gmock.h>

#include "run_files.h"

namespace titan::runs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  for (const auto& run : find_runs(words)) out.push_back(run.name);
  return out;
}

TEST(FindRuns, TakesARunWhateverOfItIsNamed) {
  const TemporaryFolder folder;
  folder.write("one/metrics.jsonl", "");
  folder.write("one/checkpoint/step-5/.metadata", "");
  const std::string one = folder.path() / "one";
  for (const char* part : {"", "/", "/.", "/metrics.jsonl", "/checkpoint", "/checkpoint/step-5"})
    EXPECT_THAT(names({one + part}), ElementsAre("one")) << part;
  EXPECT_THAT(names({one, one}), ElementsAre("one"));
}

TEST(FindRuns, TakesAFolderOfRunsAndNamesEachApart) {
  const TemporaryFolder folder;
  folder.write("sweep/trial-1/metrics.jsonl", "");
  folder.write("sweep/trial-0/metrics.jsonl", "");
  folder.write("sweep/notes/text", "");
  folder.write("other/metrics.jsonl", "");
  const std::string at = folder.path();
  EXPECT_THAT(names({at + "/sweep"}), ElementsAre("trial-0", "trial-1"));
  EXPECT_THAT(names({at + "/other", at + "/sweep"}), ElementsAre("other", "sweep/trial-0", "sweep/trial-1"));
}

TEST(FindRuns, SaysWhatIsNoRun) {
  const TemporaryFolder folder;
  folder.write("empty/text", "");
  const std::string at = folder.path();
  EXPECT_THAT(error_of([&] { names({at + "/gone"}); }), HasSubstr("; it is not there"));
  EXPECT_THAT(error_of([&] { names({at + "/empty"}); }), HasSubstr("; it has no metrics.jsonl, nor has a folder"));
  EXPECT_THAT(error_of([&] { names({at + "/empty/text"}); }), HasSubstr("; it is a file"));
}

TEST(ConfigDifferences, LeaveOutWhereARunLies) {
  config::JobConfig a, b;
  a.job.dump_folder = "a";
  b.job.dump_folder = "b";
  b.training.steps = 7;
  const config::JobConfig both[] = {a, b};
  const auto found = differences(both);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, "training.steps");
  EXPECT_EQ(changes_from_defaults(a).size(), 0u);
  EXPECT_THAT(changes_from_defaults(b)[0].values, ElementsAre(std::to_string(a.training.steps), "7"));
}

}  // namespace
}  // namespace titan::runs
