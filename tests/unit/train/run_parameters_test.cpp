#include "train/step/run_parameters.h"

#include <gtest/gtest.h>

#include "nn/layers.h"

namespace titan::train {
namespace {

struct Net : nn::Module {
  Net() {
    child("table", table, std::make_shared<nn::Linear>(3, 5));
    child("norm", norm, std::make_shared<nn::RMSNorm>(3, 1e-5));
    child("output", output, std::make_shared<nn::Linear>(3, 5));
    tie("output.weight", "table.weight");
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return (*output)((*norm)(inputs[0])); }
  std::shared_ptr<nn::Linear> table, output;
  std::shared_ptr<nn::RMSNorm> norm;
};

std::vector<std::string> names_of(const std::vector<optim::TrainedParameter>& parameters) {
  std::vector<std::string> names;
  for (const auto& each : parameters) names.push_back(each.fqn);
  return names;
}

TEST(RunParameters, ListATiedParameterOnce) {
  Net net;
  const RunParameters parameters(net);
  ASSERT_EQ(parameters.size(), 2U);
  EXPECT_EQ(parameters[0].fqn, "table.weight");
  EXPECT_EQ(parameters[0].other_names, std::vector<std::string>{"output.weight"});
  EXPECT_EQ(parameters[0].shape, (std::vector<std::int64_t>{5, 3}));
  EXPECT_EQ(parameters[1].fqn, "norm.weight");
  EXPECT_TRUE(parameters[1].other_names.empty());
  EXPECT_EQ(names_of(parameters.to_train()), (std::vector<std::string>{"table.weight", "norm.weight"}));
  EXPECT_EQ(parameters.local_numel(), 15 + 3);
}

TEST(RunParameters, StoreATiedParameterUnderEachOfItsNames) {
  Net net;
  const RunParameters parameters(net);
  std::vector<std::string> names;
  for (const auto& [fqn, parameter] : parameters.stored()) names.push_back(fqn + " " + parameter->fqn);
  EXPECT_EQ(names, (std::vector<std::string>{"table.weight table.weight", "norm.weight norm.weight",
                                             "output.weight table.weight"}));
}

// The last stage of a pipeline: the norm, and a copy of the table.
TEST(RunParameters, ListWhatOtherRanksHave) {
  Net net;
  const auto whole = slots_of(net);
  net.drop_child("table");
  net.norm->weight = net.norm->weight.to(at::kBFloat16);
  const RunParameters parameters(net, whole, {.trained = at::kDouble});
  ASSERT_EQ(parameters.size(), 2U);
  EXPECT_EQ(parameters[0].fqn, "table.weight");
  ASSERT_TRUE(parameters[0].local);
  EXPECT_EQ(parameters[0].local->fqn, "output.weight");
  EXPECT_TRUE(parameters[0].is_copy());
  EXPECT_FALSE(parameters[1].is_copy());
  EXPECT_EQ(parameters[1].dtype, at::kBFloat16);
  EXPECT_TRUE(parameters.owned(at::kCPU).equal(at::tensor({0.0F, 1.0F})));
  EXPECT_EQ(parameters.local_numel(), 15 + 3);
  ASSERT_EQ(parameters.stored().size(), 3U);
  EXPECT_EQ(parameters.stored()[2].first, "output.weight");
  EXPECT_EQ(parameters.stored()[2].second, &parameters[0]);
}

// The first stage: the table alone, which another rank has a copy of.
TEST(RunParameters, OwnWhatHasTheFirstName) {
  Net net;
  const auto whole = slots_of(net);
  net.drop_child("norm");
  net.drop_child("output");
  const RunParameters parameters(net, whole, {.trained = at::kDouble});
  ASSERT_EQ(parameters.size(), 2U);
  EXPECT_FALSE(parameters[0].is_copy());
  EXPECT_FALSE(parameters[1].local);
  EXPECT_FALSE(parameters[1].is_copy());
  EXPECT_EQ(parameters[1].shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(parameters[1].dtype, at::kDouble);
  EXPECT_EQ(names_of(parameters.to_train()), std::vector<std::string>{"table.weight"});
  EXPECT_FALSE(parameters.owned(at::kCPU).defined());
  EXPECT_EQ(parameters.local_numel(), 15);
}

TEST(RunParameters, TrainNoFrozenParameter) {
  Net net;
  net.table->weight.set_requires_grad(false);
  const RunParameters parameters(net);
  EXPECT_EQ(parameters.size(), 2U);
  EXPECT_FALSE(parameters[0].is_trained);
  EXPECT_EQ(names_of(parameters.to_train()), std::vector<std::string>{"norm.weight"});
}

}  // namespace
}  // namespace titan::train
