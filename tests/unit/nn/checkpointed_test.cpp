// Tests checkpointed modules: random numbers, repeated backward, nesting, and recomputations that differ.
#include "nn/checkpointed.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "nn/ops/kept_ops.h"
#include "tests/support/message_of.h"

namespace titan::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Applies `body` to its input and one weight [3, 3].
class Lambda : public Module {
 public:
  using Body = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight)>;
  explicit Lambda(Body body) : body_(std::move(body)) { param("weight", weight, {3, 3}); }
  at::Tensor forward(const Tensors& inputs) override { return body_(inputs[0], weight); }
  at::Tensor weight;

 private:
  Body body_;
};

struct Result {
  at::Tensor output, input_grad, weight_grad, next_random;
};

// Forward and backward from a fixed random state; `next_random` is what the generator gives afterwards.
Result run(const Lambda::Body& body, const std::optional<CheckpointOptions>& options, int backwards = 1) {
  Lambda module(body);
  module.weight = at::arange(9, at::kFloat).reshape({3, 3}).div(7).set_requires_grad(true);
  if (options) checkpoint_activations(module, *options);
  const auto x = at::arange(6, at::kFloat).reshape({2, 3}).add(1).set_requires_grad(true);
  at::manual_seed(3);
  auto output = module(x);
  at::rand({5});  // others draw between forward and backward
  for (int i = 0; i < backwards; ++i) torch::autograd::backward({output.sum()}, {}, /*retain_graph=*/true);
  return {output.detach(), x.grad(), module.weight.grad(), at::rand({4})};
}

void expect_equal(const Result& found, const Result& expected) {
  EXPECT_TRUE(found.output.equal(expected.output));
  EXPECT_TRUE(found.input_grad.equal(expected.input_grad));
  EXPECT_TRUE(found.weight_grad.equal(expected.weight_grad));
  EXPECT_TRUE(found.next_random.equal(expected.next_random));
}

at::Tensor with_dropout(const at::Tensor& x, const at::Tensor& weight) {
  return at::dropout(apply_linear(at::silu(x), weight), 0.5, /*train=*/true).square();
}

CheckpointOptions keep_everything() {
  return {.policy = [] { return [](const Op&) { return true; }; }};
}

TEST(Checkpointed, DrawsTheSameRandomNumbersAgain) {
  const auto plain = run(with_dropout, std::nullopt);
  EXPECT_GT(plain.output.eq(0).sum().item<int>(), 0);  // something was dropped,
  EXPECT_GT(plain.output.ne(0).sum().item<int>(), 0);  // and something was not
  expect_equal(run(with_dropout, CheckpointOptions{}), plain);
  expect_equal(run(with_dropout, keep_everything()), plain);
}

TEST(Checkpointed, DrawsOtherNumbersWhenToldNotToCare) {
  const auto careless = run(with_dropout, CheckpointOptions{.preserve_rng_state = false});
  EXPECT_FALSE(careless.next_random.equal(run(with_dropout, std::nullopt).next_random));
}

TEST(Checkpointed, BackwardMayRunTwice) {
  expect_equal(run(with_dropout, keep_everything(), 2), run(with_dropout, std::nullopt, 2));
}

TEST(Checkpointed, OneBelowAnotherIsAPartOfIt) {
  auto inner =
      std::make_shared<Lambda>([](const at::Tensor& x, const at::Tensor& w) { return apply_linear(x, w).square(); });
  checkpoint_activations(*inner, {});
  const auto body = [&](const at::Tensor& x, const at::Tensor& weight) {
    inner->weight = weight;
    return at::silu(apply_linear((*inner)(x), weight));
  };
  const auto plain = run(
      [](const at::Tensor& x, const at::Tensor& w) { return at::silu(apply_linear(apply_linear(x, w).square(), w)); },
      std::nullopt);
  expect_equal(run(body, keep_everything()), plain);
  expect_equal(run(body, CheckpointOptions{}), plain);
}

// A frozen input or weight gets no gradient, and the other one gets its own.
TEST(Checkpointed, KeptLinearSkipsWhatIsFrozen) {
  const auto body = [](const at::Tensor& x, const at::Tensor& weight) {
    return apply_linear(x.detach(), weight) + apply_linear(x, weight.detach());
  };
  expect_equal(run(body, keep_everything()), run(body, std::nullopt));
}

TEST(Checkpointed, WritingToAKeptResultIsAnError) {
  const auto body = [](const at::Tensor& x, const at::Tensor& weight) {
    auto y = apply_linear(x, weight);
    if (!y.requires_grad()) y.mul_(2);
    return y.square();
  };
  EXPECT_THROW(run(body, keep_everything()), InternalError);
}

std::string message_of(const Lambda::Body& body, const CheckpointOptions& options) {
  return test::message_of<InternalError>([&] { run(body, options); });
}

// Bodies that do something else the second time, when gradients are on.
TEST(Checkpointed, TellsHowARecomputationDiffers) {
  const auto fewer = [](const at::Tensor& x, const at::Tensor& w) {
    return x.requires_grad() && at::GradMode::is_enabled() ? x * w[0] : apply_linear(x, w);
  };
  EXPECT_THAT(message_of(fewer, {}), HasSubstr("ran 0 operators, forward ran 1"));
  const auto more = [](const at::Tensor& x, const at::Tensor& w) {
    return at::GradMode::is_enabled() ? apply_linear(apply_linear(x, w), w) : apply_linear(x, w);
  };
  EXPECT_THAT(message_of(more, {}), HasSubstr("operator 2 of the recomputation is linear, in forward it was none"));
  const auto narrower = [](const at::Tensor& x, const at::Tensor& w) {
    return at::GradMode::is_enabled() ? apply_linear(x, w.narrow(0, 0, 1)).expand({2, 3}) : apply_linear(x, w);
  };
  EXPECT_THAT(message_of(narrower, {}),
              AllOf(HasSubstr("the output of operator 1 (linear) is Float [2, 1] on cpu"),
                    HasSubstr("in forward it was Float [2, 3] on cpu"), Not(HasSubstr("operators of the forward:"))));
  EXPECT_THAT(message_of(narrower, {.debug = true}),
              AllOf(HasSubstr("operators of the forward:\n  linear -> Float [2, 3] on cpu"),
                    HasSubstr("operators of the recomputation:\n  linear -> Float [2, 1] on cpu")));
  EXPECT_EQ(message_of(narrower, {.determinism_check = false}), "no error");
  const auto other_output = [](const at::Tensor& x, const at::Tensor& w) {
    return at::GradMode::is_enabled() ? x * w[0].sum() : (x * w[0].sum()).to(at::kDouble);
  };
  EXPECT_THAT(message_of(other_output, {}), HasSubstr("the module's output is Float [2, 3] on cpu"));
}

TEST(Checkpointed, EverySecondLinearIsKept) {
  const std::vector<std::int64_t> small = {2, 3}, large = {8, 3};
  auto keep = keep_every_second_linear({large});
  std::vector<bool> kept;
  for (const auto* shape : {&small, &large, &small, &small}) kept.push_back(keep({OpKind::kLinear, *shape}));
  kept.push_back(keep({OpKind::kAttention}));
  kept.push_back(keep({OpKind::kLinear, small}));
  EXPECT_EQ(kept, (std::vector<bool>{true, false, false, true, true, false}));
}

}  // namespace
}  // namespace titan::nn
