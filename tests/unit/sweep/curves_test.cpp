#include "sweep/results/curves.h"

#include <gmock/gmock.h>

#include <cmath>

#include "support.h"

namespace titan::sweep {
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
  // As the program does it: a new file in the place of the old, and then new rows, the same length as before.
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

TEST(TrialMetrics, ReadsValidationUnderItsName) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"step\":5,\"loss\":1}\n");
  folder.write("validation.jsonl", "{\"step\":4,\"loss\":2}\n");
  TrialMetrics metrics(folder.path());
  metrics.refresh();
  EXPECT_THAT(metrics.curve("loss").values, ElementsAre(1));
  EXPECT_THAT(metrics.curve("validation.loss").values, ElementsAre(2));
  EXPECT_EQ(metrics.last_step(), 5);
}

TEST(Reduce, MakesOneNumberOfACurve) {
  const Curve curve{{1, 2, 3, 4}, {5, 1, 3, 2}};
  EXPECT_EQ(reduce(curve, {"loss", "last", 1, false}), 2);
  EXPECT_EQ(reduce(curve, {"loss", "min", 1, false}), 1);
  EXPECT_EQ(reduce(curve, {"loss", "max", 1, false}), 5);
  EXPECT_EQ(reduce(curve, {"loss", "mean", 3, false}), 2);
  EXPECT_EQ(reduce(curve, {"loss", "mean", 9, false}), 2.75);
  EXPECT_EQ(reduce({}, {}), std::nullopt);
}

TEST(Reduce, ValuesThatAreNoNumbersDoNotHideOthersButSpoilAMean) {
  const Curve curve{{1, 2, 3}, {kNaN, 4, 3}};
  EXPECT_EQ(reduce(curve, {"loss", "min", 1, false}), 3);
  EXPECT_EQ(reduce(curve, {"loss", "max", 1, false}), 4);
  EXPECT_TRUE(std::isnan(*reduce(curve, {"loss", "mean", 3, false})));
  EXPECT_TRUE(std::isnan(*reduce({{1}, {kNaN}}, {"loss", "min", 1, false})));
}

}  // namespace
}  // namespace titan::sweep
