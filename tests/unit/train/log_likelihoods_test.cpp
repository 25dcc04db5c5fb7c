// Tests log-likelihoods of texts against a plain softmax of each text alone.
#include "train/guests/scores/log_likelihoods.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "nn/layers.h"
#include "nn/ops/cross_entropy.h"

namespace titan::train {
namespace {

constexpr std::int64_t kTokens = 13;

// Sums what it has seen of a row, so that the place of a token and the tokens before it matter, and those after do not.
class SummingNet : public LanguageModel {
 public:
  SummingNet() {
    child("embedding", embedding_, std::make_shared<nn::Embedding>(kTokens, 8));
    child("output", output_, std::make_shared<nn::Linear>(8, kTokens));
    for (const auto& parameter : named_parameters()) parameter.tensor() = at::randn(parameter.tensor().sizes());
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    shapes.push_back(inputs[0].sizes().vec());
    const auto logits = (*output_)((*embedding_)(inputs[0]).cumsum(1));
    return inputs.size() > 1 ? nn::cross_entropy_sum(logits, inputs[1]) : logits;
  }
  nn::Module& output() override { return *output_; }
  void init_weights(nn::Initializer& /*initializer*/, at::Device /*buffer_device*/) override {}
  std::vector<std::vector<std::int64_t>> shapes;  // of the tokens, per call

 private:
  std::shared_ptr<nn::Embedding> embedding_;
  std::shared_ptr<nn::Linear> output_;
};

// Returns texts of 2 to 9 tokens, of which 1 to all are scored. Every fourth differs from the one before in its last
// token only.
std::vector<ScoredText> some_texts(std::size_t count) {
  std::vector<ScoredText> texts;
  std::uint32_t state = 5;
  const auto draw = [&](std::uint32_t below) { return (state = state * 1664525u + 1013904223u) / 65536u % below; };
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 4 == 3) {
      texts.push_back(texts.back());
      texts.back().tokens.back() = (texts.back().tokens.back() + 1) % static_cast<std::int32_t>(kTokens);
      texts.back().num_scored = 1;
      continue;
    }
    ScoredText& text = texts.emplace_back();
    for (std::uint32_t length = 2 + draw(8); length > 0; --length)
      text.tokens.push_back(static_cast<std::int32_t>(draw(kTokens)));
    text.num_scored = 1 + draw(static_cast<std::uint32_t>(text.tokens.size()) - 1);
  }
  return texts;
}

double alone(SummingNet& net, const ScoredText& text) {
  const auto tokens = at::tensor(text.tokens, at::kInt).to(at::kLong);
  const auto count = tokens.size(0) - 1;
  const auto log_probs = at::log_softmax(net(tokens.narrow(0, 0, count).unsqueeze(0))[0].to(at::kDouble), -1);
  const auto each = log_probs.gather(1, tokens.narrow(0, 1, count).unsqueeze(1)).squeeze(1);
  return each.narrow(0, count - text.num_scored, text.num_scored).sum().item<double>();
}

std::vector<double> computed(SummingNet& net, const std::vector<ScoredText>& texts, const ScoringOptions& options) {
  dist::ProcessGroup group("alone", {0}, 0, nullptr, nullptr);
  net.shapes.clear();
  return *LogLikelihoods(texts, options).compute(net, at::kCPU, group, [] { return false; });
}

class LogLikelihoodsTest : public ::testing::Test {
 protected:
  LogLikelihoodsTest() { at::manual_seed(3); }
  const at::NoGradGuard no_grad_;
  const std::vector<ScoredText> texts_ = some_texts(40);
};

// The losses are in float32: about 1e-7 of logits of some 10, of up to 8 tokens.
constexpr double kNear = 1e-5;

TEST_F(LogLikelihoodsTest, AreThoseOfEachTextAlone) {
  SummingNet net;
  for (const std::int64_t batch_size : {1, 3, 100})
    for (const std::int64_t multiple : {1, 4})
      for (const std::int64_t bytes : {std::int64_t{0}, 4 * kTokens * 12, std::int64_t{1} << 30}) {
        const auto found = computed(
            net, texts_,
            {.batch_size = batch_size, .vocab_size = kTokens, .length_multiple = multiple, .logits_bytes = bytes});
        for (const auto& shape : net.shapes) {
          EXPECT_LE(shape[0], bytes == 0 ? 1 : batch_size);
          EXPECT_EQ(shape[1] % multiple, 0);
        }
        ASSERT_EQ(found.size(), texts_.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_NEAR(found[i], alone(net, texts_[i]), kNear)
              << i << " of " << batch_size << " " << multiple << " " << bytes;
      }
}

TEST_F(LogLikelihoodsTest, TextsThatDifferInTheirLastTokenAreComputedOnce) {
  SummingNet net;
  computed(net, texts_, {.batch_size = 1, .vocab_size = kTokens});
  std::set<std::vector<std::int32_t>> inputs;
  for (const ScoredText& text : texts_) inputs.emplace(text.tokens.begin(), text.tokens.end() - 1);
  EXPECT_EQ(net.shapes.size(), inputs.size());
  EXPECT_LE(inputs.size(), 30u);  // of 40
}

TEST_F(LogLikelihoodsTest, EndsWhenAskedTo) {
  SummingNet net;
  dist::ProcessGroup group("alone", {0}, 0, nullptr, nullptr);
  const LogLikelihoods plan(texts_, {.batch_size = 1, .vocab_size = kTokens});
  EXPECT_EQ(plan.compute(net, at::kCPU, group, [&] { return net.shapes.size() == 2; }), std::nullopt);
  EXPECT_EQ(net.shapes.size(), 2u);
}

}  // namespace
}  // namespace titan::train
