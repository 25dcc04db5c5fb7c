#include "nn/ops/rope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/ops/fused_ops.h"

namespace titan::nn {
namespace {

// The ratios of scaled to plain frequencies for head_dim 16, theta 500,000, from the formula by hand: wavelengths 6.3,
// 32, 167 and 863 are short, 4,459 is between, the rest beyond 8,192.
TEST(Rope, ScalesFrequenciesAsLlama31) {
  const auto plain = at::angle(precompute_freqs_cis(16, 2, 500000, std::nullopt, at::kCPU))[1];
  const auto scaled = at::angle(precompute_freqs_cis(16, 2, 500000, RopeScaling{}, at::kCPU))[1];
  const auto expected = at::tensor({1.0, 1.0, 1.0, 1.0, 0.37112, 0.125, 0.125, 0.125}, at::kFloat);
  EXPECT_TRUE(at::allclose(scaled / plain, expected, 1e-4, 0)) << scaled / plain;
}

TEST(Rope, TurnsInterleavedPairs) {
  const auto table = precompute_freqs_cis(4, 3, 10000, std::nullopt, at::kCPU);
  const auto x = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kFloat).view({1, 1, 1, 4}).expand({1, 3, 1, 4});
  const auto y = apply_rotary_emb(x, table);
  EXPECT_TRUE(y[0][0].equal(x[0][0]));  // position 0 is not rotated
  const double a = 2.0, b = 2.0 / 100;  // angles of the two pairs at position 2
  const auto expected = at::tensor({std::cos(a) - 2 * std::sin(a), 2 * std::cos(a) + std::sin(a),
                                    3 * std::cos(b) - 4 * std::sin(b), 4 * std::cos(b) + 3 * std::sin(b)},
                                   at::kFloat);
  EXPECT_TRUE(at::allclose(y[0][2][0], expected, 1e-6, 1e-6)) << y;
  EXPECT_EQ(apply_rotary_emb(x.to(at::kBFloat16), table).scalar_type(), at::kBFloat16);
}

// Halves are pairs in another order.
TEST(Rope, TurnsHalvesAsItTurnsPairs) {
  const auto table = precompute_freqs_cis(8, 5, 10000, std::nullopt, at::kCPU);
  const auto x = at::randn({2, 5, 3, 8});
  const auto order = at::tensor({0, 4, 1, 5, 2, 6, 3, 7}, at::kLong);  // neighbors of the one, halves of the other
  const auto pairs = apply_rotary_emb(x.index_select(-1, order), table);
  EXPECT_TRUE(apply_rotary_emb_halves(x, table).index_select(-1, order).allclose(pairs, 1e-6, 1e-6));
  EXPECT_EQ(apply_rotary_emb_halves(x.to(at::kBFloat16), table).scalar_type(), at::kBFloat16);
}

TEST(Rope, LinearScalingStretchesAllWavelengths) {
  const RopeScaling scaling{.type = RopeScalingType::kLinear, .scaling_factor = 4};
  const auto plain = precompute_freqs_cis(8, 9, 10000, std::nullopt, at::kCPU);
  const auto scaled = precompute_freqs_cis(8, 33, 10000, scaling, at::kCPU);
  // Position 4 p of the one is position p of the other. A factor of 4 is exact.
  EXPECT_TRUE(scaled.slice(0, 0, 33, 4).equal(plain));
}

// Frequencies that turn often are kept, those that turn rarely are stretched, and all are as long as the factor says.
TEST(Rope, YarnKeepsFastFrequenciesAndStretchesSlowOnes) {
  RopeScaling scaling{.type = RopeScalingType::kYarn, .scaling_factor = 4, .original_max_position_embeddings = 4096};
  const auto plain = precompute_freqs_cis(64, 2, 10000, std::nullopt, at::kCPU);
  const auto scaled = precompute_freqs_cis(64, 2, 10000, scaling, at::kCPU);
  const auto ratio = (at::angle(scaled) / at::angle(plain))[1];
  EXPECT_NEAR(ratio[0].item<double>(), 1, 1e-6);
  EXPECT_NEAR(ratio[31].item<double>(), 0.25, 1e-6);
  EXPECT_TRUE((ratio.diff() <= 1e-6).all().item<bool>()) << ratio;
  const double factor = 0.1 * std::log(4.0) + 1;
  EXPECT_TRUE(at::abs(scaled).allclose(at::full({2, 32}, factor), 1e-6, 0));
  scaling.attention_factor = 1.5;
  EXPECT_TRUE(at::abs(precompute_freqs_cis(64, 2, 10000, scaling, at::kCPU)).allclose(at::full({2, 32}, 1.5), 1e-6, 0));
}

// The gradient of a rotation that also stretches is stretched, too.
TEST(Rope, GradientsAreMultipliedByTheAttentionFactor) {
  const RopeScaling scaling{.type = RopeScalingType::kYarn, .attention_factor = 1.5};
  const auto table = precompute_freqs_cis(8, 5, 10000, scaling, at::kCPU);
  for (const auto& rotate : {apply_rotary_emb, apply_rotary_emb_halves}) {
    const auto x = at::randn({2, 5, 3, 8}).requires_grad_();
    const auto y = rotate(x, table);
    // 1.5 times a rotation: the length of y, and of the gradient of half its square.
    EXPECT_TRUE((y * y).sum(-1).allclose((x * x).sum(-1) * 2.25, 1e-5, 1e-5));
    (y * y).sum().mul(0.5).backward();
    EXPECT_TRUE(x.grad().allclose(x.detach() * 2.25, 1e-5, 1e-5));
  }
}

}  // namespace
}  // namespace titan::nn
