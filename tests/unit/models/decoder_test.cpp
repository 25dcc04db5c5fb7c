// Tests that a decoder whose parts are on different ranks is the full one: weights and logits.
#include "models/common/decoder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/message_of.h"

namespace titan::models {
namespace {

constexpr std::int64_t kLayers = 3, kLength = 6;

DecoderShape small(bool qk_norm) {
  DecoderShape shape{.block = {{32, 4, 2, 10, RotaryPairs::kHalves}, 48, 1e-6},
                     .n_layers = kLayers,
                     .vocab_size = 40,
                     .rope_theta = 1e4};
  if (qk_norm) shape.block.attention.qk_norm_eps = 1e-6;
  return shape;
}

void fill(Decoder& model) {
  fsdp::to_empty(model, at::kCPU);
  const at::NoGradGuard no_grad;
  nn::SequentialInitializer initializer(7);
  model.init_weights(initializer, at::kCPU);
  // With its initial weights, attention adds little to its input: a wrong position would hardly show.
  for (const auto& parameter : model.named_parameters())
    if (parameter.fqn.find("attention.w") != std::string::npos) parameter.tensor().mul_(10);
}

TEST(Decoder, HasTorchTitansNamesAndOrder) {
  Decoder model(small(/*qk_norm=*/true), kLength);
  std::vector<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.push_back(parameter.fqn);
  const std::vector<std::string> first(names.begin(), names.begin() + 12);
  EXPECT_EQ(first,
            (std::vector<std::string>{
                "tok_embeddings.weight", "layers.0.attention.q_norm.weight", "layers.0.attention.k_norm.weight",
                "layers.0.attention.wq.weight", "layers.0.attention.wk.weight", "layers.0.attention.wv.weight",
                "layers.0.attention.wo.weight", "layers.0.feed_forward.w1.weight", "layers.0.feed_forward.w2.weight",
                "layers.0.feed_forward.w3.weight", "layers.0.attention_norm.weight", "layers.0.ffn_norm.weight"}));
  EXPECT_EQ(names.back(), "output.weight");
}

TEST(Decoder, PartsOnTwoRanksAreTheWhole) {
  for (const bool tied : {false, true}) {
    DecoderShape shape = small(/*qk_norm=*/tied);
    shape.tied = tied;
    Decoder whole(shape, kLength), first(shape, kLength), last(shape, kLength);
    for (const char* part : {"norm", "output"}) first.drop_child(part);
    first.parts().layers->drop_child("2");
    last.drop_child("tok_embeddings");
    for (const char* layer : {"0", "1"}) last.parts().layers->drop_child(layer);
    for (Decoder* model : {&whole, &first, &last}) fill(*model);
    const at::NoGradGuard no_grad;
    const auto tokens = at::arange(kLength, at::kLong).view({1, kLength});
    EXPECT_TRUE(last(first(tokens)).equal(whole(tokens)));
  }
}

TEST(Decoder, InitializesNothingThatItDoesNotKnow) {
  Decoder model(small(/*qk_norm=*/false), kLength);
  auto& attention = *(*model.parts().layers)[1].children().front().second;
  attention.replace_child("wq", std::make_shared<nn::Linear>(32, 40, /*has_bias=*/true));
  EXPECT_EQ(test::message_of<InternalError>([&] { fill(model); }),
            "layers.1.attention.wq.bias has no initial values: a pass added it to the model");
}

TEST(Decoder, PositionsChooseTheRotaryFactors) {
  Decoder model(small(/*qk_norm=*/false), 2 * kLength);
  fill(model);
  const at::NoGradGuard no_grad;
  const auto tokens = at::arange(kLength, at::kLong).view({1, kLength}), positions = at::arange(kLength);
  EXPECT_TRUE(model(nn::Tensors{tokens, at::Tensor(), positions}).equal(model(tokens)));
  // Attention depends on distances alone.
  const at::Tensor later = model(nn::Tensors{tokens, at::Tensor(), positions + 3});
  EXPECT_TRUE(later.allclose(model(tokens), 1e-4, 1e-4));
  EXPECT_FALSE(model(nn::Tensors{tokens, at::Tensor(), positions * 2}).allclose(model(tokens), 1e-4, 1e-4));
}

}  // namespace
}  // namespace titan::models
