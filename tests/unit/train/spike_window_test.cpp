#include "train/guests/numerics/spike_window.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace titan::train {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool is_spike(SpikeWindow& window, double loss, double norm) {
  const auto scalar = [](double value) { return at::full({}, value, at::kFloat); };
  return window.judge(scalar(loss), scalar(norm)).is_spike.item<float>() == 1;
}

// A loss that goes down a little and swings by 0.1, a norm that swings by 0.2.
bool calm(SpikeWindow& window, int step) {
  return is_spike(window, 3.0 - 0.001 * step + 0.1 * std::sin(step), 1.0 + 0.2 * std::cos(3 * step));
}

int first_spike_of(SpikeWindow& window, int from, int to) {
  for (int step = from; step < to; ++step)
    if (calm(window, step)) return step;
  return -1;
}

TEST(SpikeWindow, FindsLossAndNorm) {
  SpikeWindow window(32, 6, at::kCPU);
  ASSERT_EQ(first_spike_of(window, 0, 100), -1);
  EXPECT_FALSE(is_spike(window, 3.1, 1.3)) << "within its swings";
  EXPECT_TRUE(is_spike(window, 4.0, 1.0));
  EXPECT_FALSE(calm(window, 101));
  EXPECT_TRUE(is_spike(window, 2.9, 3.0));
  EXPECT_FALSE(is_spike(window, 0.0, 0.0)) << "what falls is not a spike";
}

// Mean and deviation by hand: a window of 4 steps holds the losses 1, 3, 2 and 2; the fifth loss drops the first, 9.
TEST(SpikeWindow, NumbersAreThoseOfTheStepsBefore) {
  SpikeWindow window(4, 6, at::kCPU);
  for (const double loss : {9.0, 1.0, 3.0, 2.0, 2.0}) is_spike(window, loss, 10 * loss);
  const auto numbers = window.judge(at::full({}, 2.5F), at::full({}, 7.0F)).numbers;
  EXPECT_EQ(numbers[0][0].item<double>(), 2.5);
  EXPECT_EQ(numbers[0][1].item<double>(), 2.0);
  EXPECT_NEAR(numbers[0][2].item<double>(), std::sqrt(2.0 / 3.0), 1e-15);
  EXPECT_EQ(numbers[1][1].item<double>(), 20.0);
}

TEST(SpikeWindow, HalfAWindowIsNeeded) {
  SpikeWindow window(16, 6, at::kCPU);
  for (int step = 0; step < 7; ++step) ASSERT_FALSE(calm(window, step));
  EXPECT_FALSE(is_spike(window, 1000, 1)) << "the eighth step";
  SpikeWindow other(16, 6, at::kCPU);
  for (int step = 0; step < 8; ++step) ASSERT_FALSE(calm(other, step));
  EXPECT_TRUE(is_spike(other, 1000, 1));
}

TEST(SpikeWindow, NumbersAloneAreTakenIn) {
  SpikeWindow window(16, 6, at::kCPU);
  ASSERT_EQ(first_spike_of(window, 0, 20), -1);
  const auto before = window.value();
  EXPECT_FALSE(is_spike(window, kNan, 1));
  EXPECT_FALSE(is_spike(window, 3, kNan));
  EXPECT_FALSE(is_spike(window, std::numeric_limits<float>::infinity(), 1));
  EXPECT_EQ(window.value(), before);
}

// A 1e30 among losses of 3 would make every later loss look usual. A level that stays is accepted.
TEST(SpikeWindow, ASpikeNeitherHidesTheNextNorLastsForEver) {
  SpikeWindow window(32, 6, at::kCPU);
  ASSERT_EQ(first_spike_of(window, 0, 40), -1);
  EXPECT_TRUE(is_spike(window, 1e30, 1));
  EXPECT_TRUE(is_spike(window, 1e3, 1));
  int spikes = 0;
  while (spikes < 100 && is_spike(window, 5, 1)) ++spikes;
  EXPECT_GT(spikes, 0);
  EXPECT_LT(spikes, 32);
}

// Without an allowance, rounding would make every next value a spike.
TEST(SpikeWindow, ALossThatStandsStillMayMoveALittle) {
  SpikeWindow window(8, 6, at::kCPU);
  for (int step = 0; step < 8; ++step) ASSERT_FALSE(is_spike(window, 2, 1));
  EXPECT_FALSE(is_spike(window, 2.0001, 1));
  EXPECT_TRUE(is_spike(window, 2.1, 1));
}

TEST(SpikeWindow, GoesOnFromItsValue) {
  for (const int steps : {0, 3, 15, 16, 21, 32}) {
    SpikeWindow window(16, 2, at::kCPU);
    first_spike_of(window, 0, steps);
    SpikeWindow resumed(16, 2, at::kCPU);
    resumed.restore(window.value(), "titan.spikes");
    EXPECT_EQ(resumed.value(), window.value()) << steps;
    for (int step = 0; step < 40; ++step) {
      const auto loss = at::full({}, 3 + 0.3 * std::sin(step * step), at::kFloat);
      const auto mine = resumed.judge(loss, loss).numbers, theirs = window.judge(loss, loss).numbers;
      ASSERT_TRUE(mine.equal(theirs)) << steps << ", then " << step << ": to the bit";
    }
  }
}

std::vector<double> losses_of(const SpikeWindow& window) {
  std::vector<double> losses;
  const auto value = window.value();
  for (const auto& loss : value.as_dict("").at("losses", "").as_sequence("")) losses.push_back(loss.as_double(""));
  return losses;
}

TEST(SpikeWindow, AnotherSizeKeepsTheNewest) {
  SpikeWindow window(4, 1e9, at::kCPU);
  for (int loss = 1; loss <= 6; ++loss) is_spike(window, loss, 1);
  SpikeWindow small(3, 1e9, at::kCPU), large(8, 1e9, at::kCPU);
  small.restore(window.value(), "");
  EXPECT_EQ(losses_of(small), (std::vector<double>{4, 5, 6}));
  large.restore(window.value(), "");
  EXPECT_EQ(losses_of(large), (std::vector<double>{3, 4, 5, 6}));
  is_spike(small, 7, 1);
  EXPECT_EQ(losses_of(small), (std::vector<double>{7, 5, 6}));
  is_spike(large, 7, 1);
  EXPECT_EQ(losses_of(large), (std::vector<double>{3, 4, 5, 6, 7}));
}

TEST(SpikeWindow, RefusesWhatIsNoWindow) {
  SpikeWindow window(4, 6, at::kCPU);
  EXPECT_THROW(window.restore(Value(3), "titan.spikes"), CheckpointError);
  EXPECT_THROW(window.restore(Value::dict({{"losses", Value::list({1.0})}, {"norms", Value::list({})}, {"next", 1}}),
                              "titan.spikes"),
               CheckpointError);
}

}  // namespace
}  // namespace titan::train
