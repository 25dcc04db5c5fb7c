#include "optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/host_arena.h"

namespace titan::optim {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

// What a forward and backward needs is free again when the moments are made: the first step takes no more memory.
TEST(AdamW, MomentsTakeMemoryFromTheFirstStepOn) {
  ASSERT_TRUE(kernels::install_host_arena());
  auto used = at::ones({static_cast<std::int64_t>(kBytes / sizeof(float))}), unused = used.clone();
  const auto before = kernels::host_arena_stats().in_use;
  AdamW optimizer({{"used", used}, {"unused", unused}}, {});
  EXPECT_EQ(kernels::host_arena_stats().in_use, before);
  used.mutable_grad() = at::ones_like(used);
  ASSERT_EQ(optimizer.grads().size(), 2);
  EXPECT_TRUE(optimizer.grads()[0].is_same(used.grad()));
  EXPECT_FALSE(optimizer.grads()[1].defined());
  EXPECT_EQ(kernels::host_arena_stats().in_use, before + kBytes);  // the gradient

  optimizer.step();
  EXPECT_EQ(kernels::host_arena_stats().in_use, before + 5 * kBytes);
  const auto moment = optimizer.states()[0].exp_avg;
  EXPECT_FLOAT_EQ(moment[7].item<float>(), 0.1F);
  EXPECT_EQ(optimizer.states()[1].exp_avg_sq.count_nonzero().item<std::int64_t>(), 0);
  optimizer.step();
  EXPECT_TRUE(moment.is_same(optimizer.states()[0].exp_avg));
  EXPECT_FLOAT_EQ(moment[7].item<float>(), 0.19F);
}

TEST(AdamW, HasMomentsForACheckpointBeforeTheFirstStep) {
  AdamW optimizer({{"weight", at::ones({3})}}, {});
  EXPECT_TRUE(optimizer.states()[0].exp_avg.equal(at::zeros({3})));
  EXPECT_TRUE(optimizer.states()[0].exp_avg_sq.equal(at::zeros({3})));
}

}  // namespace
}  // namespace titan::optim
