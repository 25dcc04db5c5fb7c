// Runs a batch through a model with one weight, whose losses and gradients are easy to compute.
#include "train/step/forward_backward.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/ops/cross_entropy.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::train {
namespace {

// The sum over tokens of weight * token * label.
class Product : public LanguageModel {
 public:
  Product() {
    param("weight", weight, {1});
    fsdp::to_empty(*this, at::kCPU);
    const at::NoGradGuard no_grad;
    weight.fill_(2.0);
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return (weight * inputs[0] * inputs[1]).sum(); }
  void init_weights(nn::Initializer&, at::Device) override {}

  at::Tensor weight;
};

Batch batch_of(std::int64_t token, std::int64_t label) {
  return {at::full({1, 3}, token, at::kLong), at::full({1, 3}, label, at::kLong)};
}

TEST(ForwardBackward, ForwardIsTheLossAlone) {
  Product model;
  const auto step = make_forward_backward(model, at::kCPU, cross_entropy_of_model);
  const at::NoGradGuard no_grad;
  const LossSum sum = step->forward(batch_of(5, 7));
  EXPECT_EQ(sum.loss.item<float>(), 3 * 2 * 5 * 7);
  EXPECT_EQ(sum.labels, 3);
  EXPECT_FALSE(sum.loss.requires_grad() || model.weight.grad().defined());
}

// Two microbatches of a step whose mean is over 4 tokens: each loss is that of its batch, and the gradients add up.
TEST(ForwardBackward, GradientsOfTheObjectiveAddUp) {
  Product model;
  const auto step = make_forward_backward(model, at::kCPU, cross_entropy_of_model);
  const auto mean = [](const at::Tensor& loss) { return loss / 4.0; };
  const auto first = step->forward_backward(batch_of(5, 7), mean);
  EXPECT_EQ(first.loss.item<float>(), 3 * 2 * 5 * 7);
  EXPECT_EQ(first.labels, 3);
  EXPECT_FALSE(first.loss.requires_grad());
  EXPECT_EQ(model.weight.grad().item<float>(), 3 * 5 * 7 / 4.0F);
  EXPECT_EQ(step->forward_backward(batch_of(1, 2), mean).loss.item<float>(), 3 * 2 * 1 * 2);
  EXPECT_EQ(model.weight.grad().item<float>(), (3 * 5 * 7 + 3 * 1 * 2) / 4.0F);
}

TEST(ForwardBackward, TheLossIsTheOneGiven) {
  Product model;
  const auto squared = [](LanguageModel& net, const Batch& batch) { return net(batch.tokens, batch.labels).square(); };
  const auto step = make_forward_backward(model, at::kCPU, squared);
  EXPECT_EQ(step->forward_backward(batch_of(1, 1), [](const at::Tensor& loss) { return loss; }).loss.item<float>(), 36);
  EXPECT_EQ(model.weight.grad().item<float>(), 2 * 6 * 3);
}

TEST(ForwardBackward, ConversationsMayCountAlike) {
  Batch batch{.tokens = at::zeros({1, 6}, at::kLong),
              .labels = at::tensor({-100, 1, 2, 3, -100, 4}, at::kLong).view({1, 6}),
              .labels_of_sample = at::tensor({3, 3, 3, 3, 1, 1}, at::kLong).view({1, 6})};
  EXPECT_EQ(count_valid_tokens(batch), 2);
}

TEST(ForwardBackward, ValidTokensAreTheLabelsThatCount) {
  auto some = batch_of(1, 2);
  EXPECT_EQ(count_valid_tokens(some), 3);
  some.labels[0][1] = nn::kIgnoreIndex;
  EXPECT_EQ(count_valid_tokens(some), 2);
}

}  // namespace
}  // namespace titan::train
