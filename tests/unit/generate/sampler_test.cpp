// Tests which tokens may be drawn, against answers worked out by hand.
#include "generate/sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"

namespace titan::generate {
namespace {

// Logits whose probabilities are 0.4, 0.1, 0.3, 0.05, 0.15.
at::Tensor logits() { return at::tensor({0.4, 0.1, 0.3, 0.05, 0.15}, at::kDouble).log() + 3; }

void expect_probabilities(const Sampling& sampling, const std::vector<double>& expected) {
  const auto found = probabilities(logits(), sampling);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[static_cast<std::int64_t>(i)].item<double>(), expected[i], 1e-6) << "token " << i;
}

TEST(Probabilities, AreTheModelsAtTemperatureOne) { expect_probabilities({}, {0.4, 0.1, 0.3, 0.05, 0.15}); }

// At temperature 1/2 they are squared: 0.16, 0.01, 0.09, 0.0025 and 0.0225 of 0.285.
TEST(Probabilities, OfAnotherTemperature) {
  expect_probabilities({.temperature = 0.5},
                       {0.16 / 0.285, 0.01 / 0.285, 0.09 / 0.285, 0.0025 / 0.285, 0.0225 / 0.285});
}

TEST(Probabilities, OfTheLikeliest) {
  expect_probabilities({.top_k = 1}, {1, 0, 0, 0, 0});
  expect_probabilities({.top_k = 3}, {0.4 / 0.85, 0, 0.3 / 0.85, 0, 0.15 / 0.85});
  expect_probabilities({.top_k = 100}, {0.4, 0.1, 0.3, 0.05, 0.15});
}

// transformers keeps all tokens that are as likely as the last one kept.
TEST(Probabilities, TokensAsLikelyAsTheLastStay) {
  const auto found = probabilities(at::tensor({1.0, 2.0, 1.0, 0.0}), {.top_k = 2});
  EXPECT_EQ(found[3].item<float>(), 0);
  EXPECT_GT(found[0].item<float>(), 0);
  EXPECT_EQ(found[0].item<float>(), found[2].item<float>());
}

// In order of likelihood they add up to 0.4, 0.7, 0.85, 0.95, 1: the token that reaches P is the last that stays.
TEST(Probabilities, OfTheLikeliestThatReachAProbability) {
  expect_probabilities({.top_p = 0.39}, {1, 0, 0, 0, 0});
  expect_probabilities({.top_p = 0.41}, {0.4 / 0.7, 0, 0.3 / 0.7, 0, 0});
  expect_probabilities({.top_p = 0.71}, {0.4 / 0.85, 0, 0.3 / 0.85, 0, 0.15 / 0.85});
  expect_probabilities({.top_p = 0.96}, {0.4, 0.1, 0.3, 0.05, 0.15});
  expect_probabilities({.top_p = 1.0}, {0.4, 0.1, 0.3, 0.05, 0.15});
  expect_probabilities({.top_p = 1e-9}, {1, 0, 0, 0, 0});
}

// First the temperature, then top-k, then top-p: of the squared and renormalized 0.16 and 0.09 the first is 0.64.
TEST(Probabilities, TemperatureThenTopKThenTopP) {
  expect_probabilities({.temperature = 0.5, .top_k = 2, .top_p = 0.63}, {1, 0, 0, 0, 0});
  expect_probabilities({.temperature = 0.5, .top_k = 2, .top_p = 0.65}, {0.64, 0, 0.36, 0, 0});
}

TEST(Sampler, TemperatureZeroIsTheLikeliest) {
  Sampler sampler({.temperature = 0}, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sampler.pick(logits()), 0);
  EXPECT_EQ(sampler.pick(at::tensor({-1.0, 4.0, 3.9}).to(at::kBFloat16)), 1);
}

TEST(Sampler, ASeedRepeatsAndDrawsAsOftenAsLikely) {
  const auto draw = [](std::uint64_t seed) {
    Sampler sampler({}, seed);
    std::vector<std::int64_t> ids;
    for (int i = 0; i < 2000; ++i) ids.push_back(sampler.pick(logits()));
    return ids;
  };
  const auto ids = draw(5);
  EXPECT_EQ(ids, draw(5));
  EXPECT_NE(ids, draw(6));
  std::map<std::int64_t, double> share;
  for (const auto id : ids) share[id] += 1.0 / 2000;
  // The standard deviation of a share is 0.011 at most, and the seed is fixed.
  EXPECT_NEAR(share[0], 0.4, 0.05);
  EXPECT_NEAR(share[2], 0.3, 0.05);
  EXPECT_NEAR(share[3], 0.05, 0.05);
}

TEST(Sampler, LeavesTheProgramsOwnGeneratorAlone) {
  at::manual_seed(3);
  const auto expected = at::rand({4});
  at::manual_seed(3);
  Sampler sampler({}, 8);
  sampler.pick(logits());
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

TEST(Sampler, RefusesWhatIsNoNumber) {
  Sampler greedy({.temperature = 0}, 1), drawn({}, 1);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto logits_of_a_diverged_model = at::tensor({0.0, bad, 1.0});
    EXPECT_THROW(greedy.pick(logits_of_a_diverged_model), Error);
    EXPECT_THROW(drawn.pick(logits_of_a_diverged_model), Error);
  }
}

}  // namespace
}  // namespace titan::generate
