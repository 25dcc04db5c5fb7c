#include "optim/make_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "facts/optimizer_facts.h"

namespace titan::optim {
namespace {

TEST(MakeOptimizer, KnowsEachNameThatTheConfigurationTakes) {
  for (const std::string& name : optimizer_names()) {
    config::Optimizer options;
    options.name = name;
    const auto optimizer = make_optimizer(options, {{"weight", at::ones({2, 3})}});
    const auto state = optimizer->state(0);
    EXPECT_EQ(std::ranges::count_if(state, &StateTensor::is_like_parameter), optimizer_facts(name).moments) << name;
    for (const StateTensor& each : state)
      if (each.is_like_parameter) {
        EXPECT_EQ(each.tensor.sizes(), (at::IntArrayRef{2, 3})) << name << " " << each.name;
      }
  }
  EXPECT_THROW(optimizer_facts("SGD"), InternalError);
  config::Optimizer unknown;
  unknown.name = "SGD";
  EXPECT_THROW(make_optimizer(unknown, {}), InternalError);
}

TEST(MakeOptimizer, UsesTheConfigurationsNumbers) {
  config::Optimizer options;
  options.beta1 = 0.5;
  options.eps = 1e-3;
  options.weight_decay = 0.25;
  const auto entries = make_optimizer(options, {{"weight", at::ones({1})}})->hyperparameters(0);
  EXPECT_EQ(entries.at(0).value, Value::tuple({0.5, options.beta2}));
  EXPECT_EQ(entries.at(1).value, Value(1e-3));
  EXPECT_EQ(entries.at(2).value, Value(0.25));
}

}  // namespace
}  // namespace titan::optim
