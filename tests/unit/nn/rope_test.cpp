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

}  // namespace
}  // namespace titan::nn
