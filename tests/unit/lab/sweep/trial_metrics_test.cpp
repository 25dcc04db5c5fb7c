#include "lab/sweep/results/trial_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace titan::sweep {
namespace {

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
