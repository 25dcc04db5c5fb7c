#include "lab/runs/compare/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/runs/compare/print_comparison.h"
#include "run_files.h"

namespace titan::runs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Two runs, a and b.
class Compare : public ::testing::Test {
 protected:
  void rows(const std::string& run, const std::string& text) { folder_.write(run + "/metrics.jsonl", text); }
  void sums(const std::string& run, const std::string& text) { folder_.write(run + "/checksums.jsonl", text); }
  Comparison result(const CompareOptions& options = {}) const {
    return compare({folder_.path() / "a", "a"}, {folder_.path() / "b", "b"}, options);
  }

  TemporaryFolder folder_;
};

TEST(RelativeDifference, KnowsWhatIsNoNumber) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(relative_difference(kNaN, kNaN), 0);
  EXPECT_EQ(relative_difference(kInf, kInf), 0);
  EXPECT_EQ(relative_difference(0.0, -0.0), 0);
  EXPECT_EQ(relative_difference(kInf, -kInf), kInf);
  EXPECT_EQ(relative_difference(kNaN, 1), kInf);
  EXPECT_EQ(relative_difference(4, -4), 2);
  EXPECT_EQ(relative_difference(3, 4), 0.25);
}

TEST_F(Compare, EqualRunsAgree) {
  const std::string text = "{\"step\":1,\"loss\":\"NaN\",\"lr\":1}\n{\"step\":2,\"loss\":7.5,\"lr\":1}\n";
  rows("a", text);
  rows("b", text);
  EXPECT_TRUE(result().agrees());
  EXPECT_EQ(result().common_steps, 2);
  EXPECT_THAT(comparison_text(result()), HasSubstr("The runs agree bit for bit in 2 common steps."));
}

TEST_F(Compare, NamesTheFirstStepOfEachMetricAndTheLargestDifference) {
  rows("a", "{\"step\":1,\"loss\":8,\"lr\":1}\n{\"step\":2,\"loss\":6,\"lr\":1}\n{\"step\":3,\"loss\":4,\"lr\":1}\n");
  rows("b", "{\"step\":1,\"loss\":8,\"lr\":1}\n{\"step\":2,\"loss\":6,\"lr\":0.5}\n{\"step\":3,\"loss\":5,\"lr\":1}\n");
  const auto found = result();
  EXPECT_EQ(found.parts_at(), 2);
  ASSERT_EQ(found.metrics.size(), 2u);
  EXPECT_EQ(found.metrics[0].name, "loss");
  EXPECT_EQ(found.metrics[0].parts_at, 3);
  EXPECT_EQ(found.metrics[0].a, 4);
  EXPECT_EQ(found.metrics[0].b, 5);
  EXPECT_EQ(found.metrics[1].parts_at, 2);
  EXPECT_EQ(found.metrics[1].largest, 0.5);
  EXPECT_EQ(found.metrics[1].largest_at, 2);
  EXPECT_THAT(comparison_text(found), HasSubstr("The runs part at step 2."));
}

TEST_F(Compare, ToleranceTellsNoiseFromADifference) {
  rows("a", "{\"step\":1,\"loss\":100}\n{\"step\":2,\"loss\":100}\n{\"step\":3,\"loss\":100}\n");
  rows("b", "{\"step\":1,\"loss\":101}\n{\"step\":2,\"loss\":104}\n{\"step\":3,\"loss\":100}\n");
  EXPECT_EQ(result().parts_at(), 1);
  EXPECT_EQ(result({.tolerance = 0.02, .metrics = {}}).parts_at(), 2);
  const auto within = result({.tolerance = 0.05, .metrics = {}});
  EXPECT_TRUE(within.agrees());
  EXPECT_THAT(comparison_text(within), HasSubstr("the largest relative difference is 0.0385, of loss at step 2"));
}

TEST_F(Compare, TimesDoNotCountUnlessTheyAreAskedFor) {
  rows("a", "{\"step\":1,\"loss\":1,\"step_seconds\":1,\"max_loss\":2}\n");
  rows("b", "{\"step\":1,\"loss\":1,\"step_seconds\":2,\"max_loss\":3}\n");
  EXPECT_TRUE(result().agrees());
  EXPECT_EQ(result({.tolerance = 0, .metrics = {"step_seconds"}}).parts_at(), 1);
  EXPECT_THAT(error_of([&] { result({.tolerance = 0, .metrics = {"los"}}); }),
              HasSubstr("--metric los: neither run has it; they have loss, step_seconds, max_loss"));
}

TEST_F(Compare, SaysWhichStepsOnlyOneHas) {
  rows("a", "{\"step\":1,\"loss\":1}\n{\"step\":10,\"loss\":1}\n{\"step\":20,\"loss\":1}\n");
  rows("b", "{\"step\":1,\"loss\":1}\n{\"step\":5,\"loss\":1}\n{\"step\":10,\"loss\":1}\n");
  const auto found = result();
  EXPECT_TRUE(found.agrees());
  EXPECT_THAT(found.steps_a.alone, ElementsAre(20));
  EXPECT_THAT(found.steps_b.alone, ElementsAre(5));
}

TEST_F(Compare, RunsWithoutACommonStepCannotBeCompared) {
  rows("a", "{\"step\":1,\"loss\":1}\n");
  rows("b", "{\"step\":2,\"loss\":1}\n");
  EXPECT_THAT(error_of([&] { result(); }), HasSubstr("the runs have no step in common: "));
}

TEST_F(Compare, ChecksumsNameTheParameterThatPartedFirst) {
  for (const char* run : {"a", "b"}) rows(run, "{\"step\":2,\"loss\":1}\n");
  const std::string begin = "{\"step\":0,\"weights\":{\"e\":\"01\",\"o\":\"02\"}}\n";
  sums("a", begin + "{\"step\":1,\"gradients\":{\"e\":\"1\",\"o\":\"2\"},\"weights\":{\"e\":\"3\",\"o\":\"4\"}}\n" +
                "{\"step\":2,\"gradients\":{\"e\":\"5\",\"o\":\"6\"},\"weights\":{\"e\":\"7\",\"o\":\"8\"}}\n");
  sums("b", begin + "{\"step\":1,\"gradients\":{\"e\":\"1\",\"o\":\"2\"},\"weights\":{\"e\":\"3\",\"o\":\"X\"}}\n" +
                "{\"step\":2,\"gradients\":{\"e\":\"X\",\"o\":\"X\"},\"weights\":{\"e\":\"X\",\"o\":\"X\"}}\n");
  const auto found = result();
  ASSERT_TRUE(found.checksums.parting);
  EXPECT_EQ(found.checksums.parting->step, 1);
  EXPECT_EQ(found.checksums.parting->kind, "weight");
  EXPECT_EQ(found.checksums.parting->parameter, "o");
  EXPECT_EQ(found.checksums.last_equal, 0);
  EXPECT_EQ(found.parts_at(), 1);
  EXPECT_THAT(comparison_text(found), HasSubstr("All gradients of the step are equal, so the update differs"));
  EXPECT_TRUE(result({.tolerance = 0.1, .metrics = {}}).agrees());  // bits have no tolerance
}

TEST_F(Compare, GradientsComeBeforeTheWeightsThatTheyChange) {
  for (const char* run : {"a", "b"}) rows(run, "{\"step\":4,\"loss\":1}\n");
  sums("a", "{\"step\":4,\"gradients\":{\"e\":\"1\",\"o\":\"2\"},\"weights\":{\"e\":\"3\",\"o\":\"4\"}}\n{\"step\":");
  sums("b", "{\"step\":4,\"gradients\":{\"e\":\"1\",\"o\":\"X\"},\"weights\":{\"e\":\"X\",\"o\":\"4\"}}\n");
  const auto found = result();
  ASSERT_TRUE(found.checksums.parting);
  EXPECT_EQ(found.checksums.parting->kind, "gradient");
  EXPECT_EQ(found.checksums.parting->parameter, "o");
  EXPECT_THAT(comparison_text(found), Not(HasSubstr("the update differs")));
}

TEST_F(Compare, SaysWhatDiffersBetweenTheConfigurations) {
  for (const char* run : {"a", "b"}) rows(run, "{\"step\":1,\"loss\":1}\n");
  folder_.write("a/config.toml", "[job]\ndump_folder = \"a\"\n[optimizer]\nlr = 1e-3\n");
  folder_.write("b/config.toml", "[job]\ndump_folder = \"b\"\n[optimizer]\nlr = 2e-3\n");
  const auto found = result();
  ASSERT_EQ(found.config.size(), 1u);
  EXPECT_EQ(found.config[0].key, "optimizer.lr");
  EXPECT_THAT(found.config[0].values, ElementsAre("0.001", "0.002"));
  const auto json = nlohmann::json::parse(comparison_json(found));
  EXPECT_EQ(json["config"][0]["b"], "0.002");
  EXPECT_EQ(json["agree"], true);
  std::filesystem::remove(folder_.path() / "b/config.toml");
  EXPECT_THAT(comparison_text(result()), HasSubstr("configurations: not compared, for one cannot be read: "));
}

TEST_F(Compare, JsonHasWhatIsNoNumberAsText) {
  rows("a", "{\"step\":1,\"loss\":\"NaN\"}\n");
  rows("b", "{\"step\":1,\"loss\":2}\n");
  const auto json = nlohmann::json::parse(comparison_json(result()));
  EXPECT_EQ(json["agree"], false);
  EXPECT_EQ(json["parts_at"], 1);
  EXPECT_EQ(json["metrics"]["loss"]["a"], "NaN");
  EXPECT_EQ(json["metrics"]["loss"]["relative"], "Infinity");
}

}  // namespace
}  // namespace titan::runs
