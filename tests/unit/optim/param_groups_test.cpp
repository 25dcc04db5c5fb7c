#include "optim/param_groups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "optim/adamw.h"
#include "tests/support/optimizer_state.h"

namespace titan::optim {
namespace {

using Names = std::vector<std::string>;

const Names kNames = {"tok_embeddings.weight",
                      "layers.0.attention.wq.weight",
                      "layers.0.attention.q_norm.weight",
                      "layers.0.attention.wo.bias",
                      "layers.0.attention_norm.weight",
                      "layers.11.attention.wq.weight",
                      "layers.11.feed_forward.w1.weight",
                      "norm.weight",
                      "output.weight"};

std::vector<ParameterRates> rates(const Names& no_decay, const Names& lr_factors) {
  config::Optimizer options;
  options.weight_decay = 0.25;
  options.no_decay = no_decay;
  options.lr_factors = lr_factors;
  return rates_of(options, kNames);
}

Names decayed(const Names& no_decay) {
  Names names;
  const auto found = rates(no_decay, {});
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    EXPECT_TRUE(found[i].weight_decay == 0 || found[i].weight_decay == 0.25);
    if (found[i].weight_decay != 0) names.push_back(kNames[i]);
  }
  return names;
}

std::string error_of(const Names& no_decay, const Names& lr_factors) {
  try {
    rates(no_decay, lr_factors);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.keys().size(), 1);
    return error.what();
  }
  return "";
}

TEST(ParamGroups, KindsAndPatternsHaveNoWeightDecay) {
  EXPECT_EQ(decayed({}), kNames);
  const Names matrices = {"tok_embeddings.weight", "layers.0.attention.wq.weight", "layers.11.attention.wq.weight",
                          "layers.11.feed_forward.w1.weight", "output.weight"};
  EXPECT_EQ(decayed({"norm", "bias"}), matrices);
  EXPECT_EQ(decayed({"norm", "bias", "embedding", "layers.*.wq.weight"}),
            (Names{"layers.11.feed_forward.w1.weight", "output.weight"}));
  EXPECT_EQ(decayed({"*"}), Names());
}

TEST(ParamGroups, TheFirstPatternGivesTheRate) {
  const auto found = rates({}, {"layers.0.*=0.5", "layers.*.attention.*=2", "output.weight=0"});
  std::vector<double> factors;
  for (const auto& each : found) factors.push_back(each.lr_factor);
  EXPECT_EQ(factors, (std::vector<double>{1, 0.5, 0.5, 0.5, 0.5, 2, 1, 1, 0}));
}

TEST(ParamGroups, PatternsWithoutEffectAreRefused) {
  EXPECT_NE(error_of({"norms"}, {}).find("did you mean \"norm\"?"), std::string::npos) << error_of({"norms"}, {});
  const std::string near = error_of({}, {"layers.*.atention.*=0.1"});
  EXPECT_NE(near.find("\"layers.*.atention.*=0.1\" matches none of the model's 9 parameters"), std::string::npos)
      << near;
  EXPECT_NE(near.find("did you mean \"layers.*.attention.*\"?"), std::string::npos) << near;
  const std::string late = error_of({}, {"layers.*=0.5", "layers.0.*=0.1"});
  EXPECT_NE(late.find("all its parameters match \"layers.*=0.5\" before it"), std::string::npos) << late;
  EXPECT_EQ(error_of({"bias", "embedding"}, {}), "");
}

TEST(ParamGroups, AreDescribedIfThereAreSeveral) {
  const auto lines = [](const Names& no_decay, const Names& lr_factors) {
    return describe_groups(rates(no_decay, lr_factors), kNames);
  };
  EXPECT_EQ(lines({}, {}), Names());
  EXPECT_EQ(lines({"norm"}, {"tok_embeddings.*=0.1"}),
            (Names{"1 parameter (tok_embeddings.weight): learning rate times 0.1, weight decay 0.25",
                   "5 parameters (layers.0.attention.wq.weight, ...): learning rate times 1, weight decay 0.25",
                   "3 parameters (layers.0.attention.q_norm.weight, ...): learning rate times 1, weight decay 0"}));
  EXPECT_EQ(lines({}, {"*=0.5"}).size(), 1);
}

// Each group is stepped like an optimizer of its own with its rates, to the bit: by the kernels for one parameter and
// by ATen's for many (bfloat16), and with moments of another dtype.
TEST(ParamGroups, StepAsOptimizersOfTheirOwn) {
  const std::vector<ParameterRates> rates = {{1, 0.1}, {0.3, 0.1}, {1, 0}, {0.3, 0}, {1, 0.1}, {0, 0.1}};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const auto state : {at::kFloat, at::kBFloat16}) {
      at::manual_seed(7);
      AdamWOptions options{.lr = 0.01, .weight_decay = 0.1, .state_dtype = state};
      std::vector<TrainedParameter> together, apart;
      for (std::size_t i = 0; i < rates.size(); ++i) {
        together.push_back({std::to_string(i), at::randn({33}).to(dtype)});
        apart.push_back({std::to_string(i), together.back().tensor.clone()});
      }
      AdamW one(together, options, rates);
      std::vector<std::unique_ptr<AdamW>> others;
      for (std::size_t i = 0; i < rates.size(); ++i) {
        options.weight_decay = rates[i].weight_decay;
        others.push_back(std::make_unique<AdamW>(std::vector{apart[i]}, options));
        EXPECT_EQ(one.lr_factor(i), rates[i].lr_factor);
        EXPECT_EQ(one.hyperparameters(i)[2].value, Value(rates[i].weight_decay));
      }
      for (int step = 0; step < 5; ++step) {
        const double lr = 0.01 / (step + 1);
        one.set_lr(lr);
        for (std::size_t i = 0; i < rates.size(); ++i) {
          together[i].tensor.mutable_grad() = at::randn({33}).to(dtype);
          apart[i].tensor.mutable_grad() = together[i].tensor.grad().clone();
          others[i]->set_lr(lr * rates[i].lr_factor);
          others[i]->step();
        }
        one.step();
      }
      for (std::size_t i = 0; i < rates.size(); ++i) {
        EXPECT_TRUE(together[i].tensor.equal(apart[i].tensor)) << i;
        EXPECT_TRUE(test::state_of(one, i, "exp_avg_sq").equal(test::state_of(*others[i], 0, "exp_avg_sq"))) << i;
      }
    }
  }
}

}  // namespace
}  // namespace titan::optim
