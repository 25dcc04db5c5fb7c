// The tables come from TorchTitan 0.2.2's build_lr_schedulers, driven through torch's AdamW and LambdaLR with a base
// learning rate of 1; the last number of each is the virtual step after the last. The comparison is exact: both sides
// do the same operations on doubles.
#include "optim/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace titan::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LrScheduleOptions options(std::int64_t total, std::int64_t warmup, std::optional<double> ratio = {},
                          DecayType type = DecayType::kLinear, double min_factor = 0.0) {
  return {total, warmup, ratio, type, min_factor};
}

// Returns the factors of all steps of a run and of the virtual one.
std::vector<double> factors(const LrScheduleOptions& o) {
  const LrSchedule schedule(o);
  std::vector<double> out;
  for (std::int64_t k = 0; k <= o.total_steps; ++k) out.push_back(schedule.factor(k));
  return out;
}

TEST(LrSchedule, LinearWithoutRatio) {
  EXPECT_THAT(factors(options(10, 2)), ElementsAre(0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0));
}

TEST(LrSchedule, CosineAndHalfRoundsDownToEven) {  // 2.5 steps of decay are 2
  EXPECT_THAT(factors(options(10, 2, 0.25, DecayType::kCosine, 0.1)),
              ElementsAre(0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.55, 0.1));
}

TEST(LrSchedule, SqrtAndHalfRoundsUpToEven) {  // 3.5 steps of decay are 4
  EXPECT_THAT(factors(options(10, 3, 0.35, DecayType::kSqrt, 0.25)),
              ElementsAre(0.3333333333333333, 0.6666666666666666, 1.0, 1.0, 1.0, 1.0, 1.0, 0.625, 0.4696699141100893,
                          0.35048094716167105, 0.25));
}

TEST(LrSchedule, NoWarmup) {
  EXPECT_THAT(factors(options(6, 0, 0.75, DecayType::kLinear, 0.1)),
              ElementsAre(1.0, 1.0, 1.0, 0.775, 0.55, 0.325, 0.1));
}

TEST(LrSchedule, WarmupLongerThanTheRunIsCut) {
  EXPECT_THAT(factors(options(4, 9)), ElementsAre(0.25, 0.5, 0.75, 1.0, 1.0));
}

TEST(LrSchedule, DecayThatDoesNotFitIsCut) { EXPECT_EQ(LrSchedule(options(10, 4, 0.8)).decay_steps(), 6); }

TEST(LrSchedule, StretchesAddUpToOneMoreThanTheRun) {
  const LrSchedule schedule(options(100, 7, 0.5));
  EXPECT_EQ(schedule.warmup_steps(), 7);
  EXPECT_EQ(schedule.decay_steps(), 50);
  EXPECT_EQ(schedule.stable_steps(), 44);
}

TEST(LrSchedule, StaysAtTheEndAfterTheRun) {
  for (const DecayType type : {DecayType::kLinear, DecayType::kSqrt, DecayType::kCosine}) {
    EXPECT_EQ(LrSchedule(options(10, 2, 0.5, type, 0.25)).factor(1000), 0.25);
  }
  EXPECT_EQ(LrSchedule(options(10, 2, 0.0)).factor(1000), 1.0);
}

TEST(LrSchedule, RefusesWhatIsNoCountAndNoFraction) {
  EXPECT_THROW(LrSchedule(options(-1, 0)), ConfigError);
  EXPECT_THROW(LrSchedule(options(10, -1)), ConfigError);
  EXPECT_THROW(LrSchedule(options(10, 1, -0.1)), ConfigError);
  EXPECT_THROW(LrSchedule(options(10, 1, 1.5)), ConfigError);
  EXPECT_THROW(LrSchedule(options(10, 1, {}, DecayType::kLinear, 1.5)), ConfigError);
  EXPECT_THROW(LrSchedule(options(10, 1)).factor(-1), InternalError);
}

TEST(LrSchedule, DecayTypeNames) {
  EXPECT_EQ(parse_decay_type("linear"), DecayType::kLinear);
  EXPECT_EQ(parse_decay_type("sqrt"), DecayType::kSqrt);
  EXPECT_EQ(parse_decay_type("cosine"), DecayType::kCosine);
  EXPECT_THAT(test::message_of<ConfigError>([] { parse_decay_type("cosin"); }), HasSubstr("Did you mean \"cosine\"?"));
}

}  // namespace
}  // namespace titan::optim
