#include "lab/runs/metrics_file.h"

#include <gmock/gmock.h>

#include <cmath>

#include "run_files.h"

namespace titan::runs {
namespace {

using ::testing::ElementsAre;

TEST(MetricsFile, FollowsAGrowingFile) {
  const TemporaryFolder folder;
  MetricsFile file(folder.path() / "metrics.jsonl");
  file.refresh();
  EXPECT_EQ(file.last_step(), 0);
  folder.write("metrics.jsonl", "{\"step\":1,\"loss\":8.5}\n{\"step\":2,\"lo");
  file.refresh();
  EXPECT_EQ(file.last_step(), 1);
  folder.write("metrics.jsonl", "ss\":7.5}\n", true);
  file.refresh();
  EXPECT_THAT(file.curve("loss").values, ElementsAre(8.5, 7.5));
}

TEST(MetricsFile, ForgetsRowsThatAResumedRunDropped) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":3}\n");
  MetricsFile file(path);
  file.refresh();
  // As the program does it: a new file with new rows replaces the old one, with the same length as before.
  folder.write("new", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":9}\n{\"step\":3,\"loss\":8}\n");
  std::filesystem::rename(folder.path() / "new", path);
  file.refresh();
  EXPECT_THAT(file.curve("loss").values, ElementsAre(1, 9, 8));
  folder.write("metrics.jsonl", "{\"step\":1,\"loss\":4}\n");
  file.refresh();
  EXPECT_THAT(file.curve("loss").values, ElementsAre(4));
}

TEST(MetricsFile, ReadsWhatIsNoNumberAndPassesOverWhatIsNoRow) {
  const TemporaryFolder folder;
  MetricsFile file(
      folder.write("metrics.jsonl",
                   "{\"step\":1,\"loss\":\"NaN\",\"mfu\":null}\n{\"st\n\n[]\n{\"step\":2,\"loss\":\"Infinity\"}\n"
                   "{\"step\":2,\"loss\":3}\n"));
  file.refresh();
  const Curve curve = file.curve("loss");
  EXPECT_THAT(curve.steps, ElementsAre(1, 2));
  EXPECT_TRUE(std::isnan(curve.values[0]));
  EXPECT_EQ(curve.values[1], 3);
  EXPECT_TRUE(file.curve("mfu").steps.empty());
}

TEST(RunMetrics, ReadsValidationUnderItsName) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"step\":5,\"loss\":1}\n");
  folder.write("validation.jsonl", "{\"step\":4,\"loss\":2}\n");
  RunMetrics metrics(folder.path());
  metrics.refresh();
  EXPECT_THAT(metrics.curve("loss").values, ElementsAre(1));
  EXPECT_THAT(metrics.curve("validation.loss").values, ElementsAre(2));
  EXPECT_EQ(metrics.last_step(), 5);
}

TEST(Curve, ThinsLongCurvesAndKeepsTheirEnds) {
  Curve curve;
  for (int i = 0; i < 1000; ++i) curve.steps.push_back(i), curve.values.push_back(i * 0.5);
  const Curve thin = thinned(curve, 100);
  EXPECT_EQ(thin.steps.size(), 100u);
  EXPECT_EQ(thin.steps.front(), 0);
  EXPECT_EQ(thin.steps.back(), 999);
  EXPECT_EQ(thin.values[50], static_cast<double>(thin.steps[50]) * 0.5);
  EXPECT_EQ(thinned(thin, 100).steps, thin.steps);
}

TEST(MetricsFile, NamesColumnsInTheirOrder) {
  const TemporaryFolder folder;
  MetricsFile file(folder.write("metrics.jsonl", "{\"step\":2,\"loss\":1,\"mfu\":null}\n{\"step\":4,\"lr\":2}\n"));
  file.refresh();
  EXPECT_THAT(file.columns(), ElementsAre("loss", "lr"));
  EXPECT_THAT(file.steps(), ElementsAre(2, 4));
}

}  // namespace
}  // namespace titan::runs
