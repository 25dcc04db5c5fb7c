// Tests packed documents under model.args.attn_mask_type = "block_causal": each gives the results that it gives alone,
// and calling a model with labels gives the loss of its logits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "models/common/decoder.h"
#include "models/llama3/flavors.h"
#include "nn/ops/cross_entropy.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::models {
namespace {

constexpr std::int64_t kEnd = 3, kVocabulary = 40;

std::unique_ptr<Decoder> make_model(bool block_causal) {
  LlamaArgs args{.dim = 32, .n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .vocab_size = kVocabulary, .multiple_of = 16};
  args.block_causal = block_causal;
  auto model = std::make_unique<Decoder>(args.decoder(), /*seq_len=*/64, kEnd);
  fsdp::to_empty(*model, at::kCPU);
  const at::NoGradGuard no_grad;
  nn::SequentialInitializer initializer(7);
  model->init_weights(initializer, at::kCPU);
  // With its initial weights, a layer adds little to its input: documents would hardly influence each other.
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.fqn.find("attention.w") != std::string::npos) parameter.tensor().mul_(10);
  }
  return model;
}

// Returns `length` tokens, of which only the last one ends the document.
at::Tensor document(std::int64_t length, std::uint64_t seed) {
  auto tokens = at::randint(kEnd + 1, kVocabulary, {1, length}, at::detail::createCPUGenerator(seed), at::kLong);
  tokens.select(1, -1).fill_(kEnd);
  return tokens;
}

// Positions continue within a row, as in TorchTitan. Rotary embeddings see only the distance of two tokens, so moving
// a document changes only the rounding of the angles: positions below 64 in float32, 64 * 2^-24 = 4e-6, times weights
// of order 1 and three layers.
TEST(BlockCausal, DocumentsDoNotSeeEachOther) {
  const std::vector<at::Tensor> documents = {document(13, 1), document(1, 2),  document(20, 3),
                                             document(9, 4),  document(14, 5), document(7, 6)};
  // Two rows of 32: the third document is split where the first row ends, and continues as a document of its own.
  const auto stream = at::cat(documents, 1).view({2, 32});
  const std::vector<at::Tensor> parts = {
      documents[0], documents[1], documents[2].narrow(1, 0, 18), documents[2].narrow(1, 18, 2), documents[3],
      documents[4], documents[5]};
  const at::NoGradGuard no_grad;
  const auto model = make_model(true);
  const auto packed = (*model)(stream).view({64, kVocabulary});
  std::vector<at::Tensor> alone;
  for (const auto& part : parts) alone.push_back((*model)(part).view({-1, kVocabulary}));
  EXPECT_LT((packed - at::cat(alone)).abs().max().item<double>(), 1e-4);

  // The plain causal model does see across: the same comparison finds differences four orders of magnitude larger.
  const auto causal = make_model(false);
  EXPECT_GT(((*causal)(stream).view({64, kVocabulary}) - at::cat(alone)).abs().max().item<double>(), 0.1);
}

// With labels, the loss and gradients of a model equal those from its logits, to the bit if these are few.
TEST(BlockCausal, WithLabelsIsTheLossOfTheLogits) {
  const auto model = make_model(true);
  const auto tokens = document(24, 1), labels = tokens.roll(1, 1);
  const auto last = model->named_parameters().back(), first = model->named_parameters().front();
  const auto gradients = [&](const at::Tensor& loss) {
    return torch::autograd::grad({loss}, {first.tensor(), last.tensor()});
  };
  const auto expected = nn::cross_entropy_sum((*model)(tokens), labels), found = (*model)(tokens, labels);
  EXPECT_TRUE(found.equal(expected));
  const auto expected_grads = gradients(expected), found_grads = gradients(found);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(found_grads[i].equal(expected_grads[i])) << i;
}

// The same documents, given by number to a model that does not separate them by a token.
TEST(BlockCausal, DocumentsMayBeGiven) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parts = {document(13, 1), document(1, 2), document(18, 3)};
  const auto row = at::cat(parts, 1);
  const auto numbers = at::repeat_interleave(at::tensor({0, 1, 2}, at::kLong), at::tensor({13, 1, 18}, at::kLong));
  const auto given = numbers.unsqueeze(0);
  const auto separated = (*make_model(true))(row);
  EXPECT_TRUE((*make_model(false))(row, at::Tensor(), at::Tensor(), given).equal(separated));
  // Given documents go before the token.
  const auto one = at::zeros_like(row);
  EXPECT_TRUE((*make_model(true))(row, at::Tensor(), at::Tensor(), one).equal((*make_model(false))(row)));
  EXPECT_TRUE((*make_model(true))(row, at::Tensor(), at::Tensor(), at::full_like(row, -1)).equal(separated));
}

TEST(BlockCausal, RowsWithoutAnEndAreCausal) {
  const at::NoGradGuard no_grad;
  const auto tokens = at::randint(kEnd + 1, kVocabulary, {2, 16}, at::detail::createCPUGenerator(5), at::kLong);
  EXPECT_TRUE((*make_model(true))(tokens).equal((*make_model(false))(tokens)));
}

}  // namespace
}  // namespace titan::models
