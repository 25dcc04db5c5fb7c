// Tests gradients of weights that are computed after a backward pass against autograd's.
#include "nn/ops/weight_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/checkpointed.h"
#include "nn/ops/kept_ops.h"

namespace titan::nn {
namespace {

// A node of its own for each linear layer, as in runs that split backward.
class WeightGradientsTest : public testing::Test {
 protected:
  void SetUp() override { use_own_linear_node(true); }
  void TearDown() override { use_own_linear_node(false); }
};

// Two linear layers with a vector between them, whose gradient no list takes.
struct TwoLayers : Module {
  TwoLayers() {
    param("first", first, {5, 3});
    param("scale", scale, {5});
    param("second", second, {4, 5});
    const auto generator = at::detail::createCPUGenerator(5);
    for (auto* weight : {&first, &scale, &second})
      *weight = at::randn(weight->sizes(), generator, at::kFloat).set_requires_grad(true);
  }
  at::Tensor forward(const Tensors& inputs) override {
    return apply_linear(at::silu(apply_linear(inputs[0], first)) * scale, second).square();
  }
  at::Tensor first, scale, second;
};

at::Tensor input_of(std::uint64_t seed) {
  return at::randn({2, 7, 3}, at::detail::createCPUGenerator(seed), at::kFloat).set_requires_grad(true);
}

// Runs the same two microbatches through `module`, and both backwards before any gradient that is left for later.
void expect_same_as_autograd(TwoLayers& module) {
  TwoLayers plain;
  WeightGradients later[2];
  for (const int i : {0, 1}) {
    const auto mine = input_of(10 + i), theirs = input_of(10 + i);
    const auto output = module(mine), expected = plain(theirs);
    EXPECT_TRUE(output.equal(expected));
    {
      const WeightGradients::Scope scope(later[i]);
      torch::autograd::backward({output.sum()}, {});
    }
    EXPECT_EQ(WeightGradients::current(), nullptr);
    torch::autograd::backward({expected.sum()}, {});
    EXPECT_TRUE(mine.grad().equal(theirs.grad()));
  }
  EXPECT_FALSE(module.first.grad().defined());
  EXPECT_FALSE(module.second.grad().defined());
  EXPECT_TRUE(module.scale.grad().equal(plain.scale.grad()));
  for (auto& list : later) list.run();
  EXPECT_TRUE(module.first.grad().equal(plain.first.grad()));
  EXPECT_TRUE(module.second.grad().equal(plain.second.grad()));
  // Nothing is left in a list.
  for (auto& list : later) list.run();
  EXPECT_TRUE(module.first.grad().equal(plain.first.grad()));
}

TEST_F(WeightGradientsTest, AreAutogradsLater) {
  TwoLayers module;
  expect_same_as_autograd(module);
}

TEST_F(WeightGradientsTest, AreAutogradsOfARecomputedForward) {
  TwoLayers module;
  checkpoint_activations(module, {});
  expect_same_as_autograd(module);
}

TEST_F(WeightGradientsTest, AreComputedAtOnceOutsideOfAScope) {
  TwoLayers module, plain;
  torch::autograd::backward({module(input_of(3)).sum()}, {});
  use_own_linear_node(false);
  torch::autograd::backward({plain(input_of(3)).sum()}, {});
  EXPECT_TRUE(module.first.grad().equal(plain.first.grad()));
  EXPECT_TRUE(module.second.grad().equal(plain.second.grad()));
}

TEST_F(WeightGradientsTest, OfAFrozenWeightAreLeftOut) {
  TwoLayers module;
  module.first.set_requires_grad(false);
  WeightGradients later;
  {
    const WeightGradients::Scope scope(later);
    torch::autograd::backward({module(input_of(3)).sum()}, {});
  }
  later.run();
  EXPECT_FALSE(module.first.grad().defined());
  EXPECT_TRUE(module.second.grad().defined());
}

}  // namespace
}  // namespace titan::nn
