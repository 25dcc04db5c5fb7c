// Tests the gradient scaler against torch.amp.GradScaler's rule, and its agreement over ranks.
#include "optim/grad_scaler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "optim/adamw.h"
#include "tests/support/optimizer_state.h"
#include "tests/support/run_ranks.h"

namespace titan {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(GradScaler, ScalesTheLossAndUnscalesTheGradients) {
  const auto world = dist::World::fake(1);
  optim::GradScaler scaler(at::kCPU, {.init_scale = 1024});
  EXPECT_EQ(scaler.scale(at::full({}, 0.5)).item<float>(), 512);
  const auto large = at::full({3}, 2048.0f), half = at::full({2}, 512, at::kBFloat16), empty = at::empty({0, 4});
  scaler.unscale({large, at::Tensor(), half, empty}, world->group());
  EXPECT_TRUE(large.equal(at::full({3}, 2.0f)));
  EXPECT_TRUE(half.equal(at::full({2}, 0.5, at::kBFloat16)));
  EXPECT_EQ(scaler.found_inf().item<float>(), 0);
}

// Grows after `interval` good steps in a row and backs off immediately; both restart the count.
TEST(GradScaler, FollowsTheRule) {
  const auto world = dist::World::fake(1);
  const optim::GradScalerOptions options;
  EXPECT_EQ(options.init_scale, 65536);
  EXPECT_EQ(options.growth_interval, 2000);
  optim::GradScaler scaler(at::kCPU, {.growth_interval = 3});
  double scale = 65536;
  std::int64_t count = 0;
  for (int step = 0; step < 40; ++step) {
    const bool bad = step % 7 == 4 || step == 12;
    EXPECT_EQ(scaler.current_scale().item<double>(), scale) << "step " << step;
    // The last of several gradients is bad: in turn infinite and NaN.
    const auto last = at::tensor({1.0f, bad ? (step % 2 ? kInf : std::nanf("")) : 1.0f});
    scaler.unscale({at::ones({2}), at::ones({2}, at::kBFloat16), last}, world->group());
    EXPECT_EQ(scaler.found_inf().item<float>(), bad ? 1 : 0);
    scaler.update();
    if (bad) {
      scale *= 0.5;
      count = 0;
    } else if (++count == 3) {
      scale *= 2;
      count = 0;
    }
    EXPECT_EQ(scaler.state().scale, scale);
    EXPECT_EQ(scaler.state().growth_tracker, count);
  }
}

TEST(GradScaler, GoesOnFromASavedState) {
  const auto world = dist::World::fake(1);
  optim::GradScaler scaler(at::kCPU, {.growth_interval = 3});
  scaler.set_state({128, 2});
  scaler.unscale({at::ones({2})}, world->group());
  scaler.update();
  EXPECT_EQ(scaler.state().scale, 256);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
}

TEST(GradScaler, InfinityOnOneRankMakesAllLeaveTheStepOut) {
  test::on_ranks(2, [](dist::World& world) {
    auto weight = at::ones({3}).set_requires_grad(true);
    optim::AdamW optimizer({{"weight", weight}}, {.lr = 0.1});
    optim::GradScaler scaler(at::kCPU);
    const auto state = [&](const char* name) { return test::state_of(optimizer, 0, name); };
    const auto step = [&](bool bad) {
      weight.mutable_grad() = at::full({3}, 65536.0f);
      if (bad && world.rank() == 1) weight.mutable_grad()[1] = kInf;
      scaler.unscale({weight.grad()}, world.group());
      optimizer.step({.found_inf = scaler.found_inf()});
      scaler.update();
    };
    step(/*bad=*/true);
    EXPECT_TRUE(weight.equal(at::ones({3})));
    EXPECT_EQ(state("step").item<float>(), 0);
    EXPECT_TRUE(state("exp_avg").equal(at::zeros({3})));
    EXPECT_EQ(scaler.state().scale, 32768);
    step(/*bad=*/false);
    EXPECT_LT(weight.max().item<float>(), 1);
    EXPECT_EQ(state("step").item<float>(), 1);
    EXPECT_FLOAT_EQ(state("exp_avg")[1].item<float>(), 0.2f);  // (1 - beta1) * 65536 / 32768
  });
}

}  // namespace
}  // namespace titan
