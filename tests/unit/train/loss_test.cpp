// The loss through autograd: equal to ATen's operators on a float32 copy, and sparing with memory that is another's.
#include "train/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"

namespace titan::train {
namespace {

constexpr std::int64_t kV = 515;

struct Problem {
  at::Tensor weights, labels;

  explicit Problem(at::ScalarType dtype) {
    at::manual_seed(3);
    weights = at::randn({2, 6, kV}).to(dtype).set_requires_grad(true);
    labels = at::randint(kV, {2, 6}, at::kLong);
    labels[1][2] = kIgnoreIndex;
  }
  // Logits that, like a model's, nobody else holds.
  at::Tensor logits() const { return weights * 2; }
};

at::Tensor gradient(const Problem& problem, const at::Tensor& loss) {
  problem.weights.mutable_grad().reset();
  torch::autograd::backward({loss}, {});
  return problem.weights.grad().to(at::kFloat);
}

// float32: both are within some 64 units in the last place (tests/unit/kernels/cross_entropy_test.cpp) of the formula;
// bfloat16: a value may be rounded to the other of two neighbours.
TEST(Loss, EqualsATensOperators) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Problem problem(dtype);
    const double rounding = dtype == at::kFloat ? 3e-5 : 1.0 / 128;
    const auto ours = cross_entropy_sum(problem.logits(), problem.labels);
    const auto atens = composed_cross_entropy_sum(problem.logits(), problem.labels);
    EXPECT_EQ(ours.scalar_type(), at::kFloat);
    EXPECT_EQ(ours.dim(), 0);
    EXPECT_NEAR(ours.item<double>(), atens.item<double>(), 1e-6 * atens.item<double>());
    const auto grad = gradient(problem, ours / 11.0 * 1024.0);
    EXPECT_TRUE(grad.allclose(gradient(problem, atens / 11.0 * 1024.0), rounding, 1e-5));
    EXPECT_GT(grad.abs().max().item<double>(), 50);  // scaled
    EXPECT_TRUE(grad[1][2].eq(0).all().item<bool>());
    const at::NoGradGuard no_grad;
    EXPECT_EQ(cross_entropy_sum(problem.logits(), problem.labels).item<double>(), ours.item<double>());
  }
}

TEST(Loss, TakesLogitsThatAreNotContiguous) {
  const Problem problem(at::kFloat);
  const auto turned = problem.logits().transpose(0, 1), labels = problem.labels.t();
  EXPECT_NEAR(cross_entropy_sum(turned, labels).item<double>(),
              composed_cross_entropy_sum(turned, labels).item<double>(), 1e-3);
}

TEST(Loss, RefusesALabelOutOfBoundsAsATenDoes) {
  const Problem problem(at::kFloat);
  problem.labels[0][0] = kV;
  EXPECT_THROW(composed_cross_entropy_sum(problem.logits(), problem.labels), c10::IndexError);
  EXPECT_THROW(cross_entropy_sum(problem.logits(), problem.labels), c10::IndexError);
}

// Where the gradient of logits that were at `memory` lies after backward.
enum class Place { kSame, kElsewhere };
Place place_of_gradient(const at::Tensor& loss, const at::Tensor& weights, const void* memory) {
  const void* seen = nullptr;
  // The first node behind the loss's that of the product: its input is the gradient of the logits.
  const auto product = loss.grad_fn()->next_edge(0).function;
  struct Hook : torch::autograd::FunctionPreHook {
    explicit Hook(const void*& s) : seen(s) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
      seen = grads.at(0).const_data_ptr();
      return grads;
    }
    const void*& seen;
  };
  product->add_pre_hook(std::make_unique<Hook>(seen));
  weights.mutable_grad().reset();
  torch::autograd::backward({loss}, {});
  EXPECT_NE(seen, nullptr);
  return seen == memory ? Place::kSame : Place::kElsewhere;
}

TEST(Loss, GradientTakesTheMemoryOfLogitsThatNobodyHolds) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Problem problem(dtype);
    const auto expected = gradient(problem, composed_cross_entropy_sum(problem.logits(), problem.labels));
    auto logits = problem.logits();
    const void* const memory = logits.const_data_ptr();
    const auto loss = cross_entropy_sum(logits, problem.labels);
    logits.reset();
    EXPECT_EQ(place_of_gradient(loss, problem.weights, memory), Place::kSame);
    EXPECT_TRUE(problem.weights.grad().to(at::kFloat).allclose(expected, 1.0 / 128, 1e-5));
  }
}

TEST(Loss, LogitsThatSomeoneHoldsStayAsTheyAre) {
  const Problem problem(at::kBFloat16);
  const auto expected = problem.logits().detach().clone();
  {
    const auto held = problem.logits();
    EXPECT_EQ(place_of_gradient(cross_entropy_sum(held, problem.labels), problem.weights, held.const_data_ptr()),
              Place::kElsewhere);
    EXPECT_TRUE(held.equal(expected));
  }
  {
    auto logits = problem.logits();
    const auto view = logits.detach()[1];  // another tensor with the memory
    const void* const memory = logits.const_data_ptr();
    const auto loss = cross_entropy_sum(logits, problem.labels);
    logits.reset();
    EXPECT_EQ(place_of_gradient(loss, problem.weights, memory), Place::kElsewhere);
    EXPECT_TRUE(view.equal(expected[1]));
  }
  {
    // Leaves, which their owner holds.
    const auto leaf = expected.clone().set_requires_grad(true);
    torch::autograd::backward({cross_entropy_sum(leaf, problem.labels)}, {});
    EXPECT_TRUE(leaf.detach().equal(expected));
  }
}

TEST(Loss, BackwardMayComeTwiceWhereTheGraphIsKept) {
  const Problem problem(at::kFloat);
  const auto loss = cross_entropy_sum(problem.logits(), problem.labels);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  const auto first = problem.weights.grad().clone();
  EXPECT_TRUE(gradient(problem, loss).equal(first));
}

TEST(Loss, RefusesToBeDifferentiatedTwice) {
  const Problem problem(at::kFloat);
  const auto loss = cross_entropy_sum(problem.logits(), problem.labels);
  EXPECT_THROW(torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/true), InternalError);
}

}  // namespace
}  // namespace titan::train
