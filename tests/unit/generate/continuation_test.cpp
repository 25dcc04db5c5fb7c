// Tests that a continuation with a cache equals the plain model's, which sees all tokens again for each new one.
#include "generate/continuation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "generate/sampler.h"
#include "models/common/decoder.h"
#include "models/llama3/flavors.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::generate {
namespace {

constexpr std::int64_t kEnd = 3, kVocabulary = 40, kContext = 48;
using Ids = std::vector<std::int32_t>;

struct Shape {
  std::int64_t kv_heads = 2;
  bool block_causal = false;
};

std::unique_ptr<models::Decoder> make_model(const Shape& shape) {
  models::LlamaArgs args;
  args.dim = 32;
  args.n_layers = 3;
  args.n_heads = 4;
  args.n_kv_heads = shape.kv_heads;
  args.vocab_size = kVocabulary;
  args.multiple_of = 16;
  args.block_causal = shape.block_causal;
  auto model = std::make_unique<models::Decoder>(args.decoder(), kContext, kEnd);
  fsdp::to_empty(*model, at::kCPU);
  const at::NoGradGuard no_grad;
  nn::SequentialInitializer initializer(7);
  model->init_weights(initializer, at::kCPU);
  // With its initial weights, a layer adds little to its input: a wrong key would hardly show.
  for (const auto& parameter : model->named_parameters()) {
    if (parameter.fqn.find("attention.w") != std::string::npos) parameter.tensor().mul_(10);
  }
  return model;
}

at::Tensor row_of(const Ids& ids) {
  return at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0);
}

struct Watched {
  Continuation continuation;
  std::vector<at::Tensor> logits;  // one for each chosen token
};

Watched run(models::Decoder& model, const Ids& prompt, const Limits& limits,
            const Sampling& sampling = {.temperature = 0}) {
  Watched out;
  Sampler sampler(sampling, 4);
  out.continuation = continue_tokens(model, prompt, limits, [&](const at::Tensor& logits) {
    out.logits.push_back(logits.clone());
    return sampler.pick(logits);
  });
  return out;
}

// The logits at every step equal the plain model's up to rounding: float32 sums of some hundred terms of order 1, in
// another order.
void expect_as_plain(models::Decoder& model, const Ids& prompt, const Watched& found) {
  const at::NoGradGuard no_grad;
  Ids all = prompt;
  for (std::size_t i = 0; i < found.logits.size(); ++i) {
    const auto plain = model(row_of(all))[0][-1];
    EXPECT_LT((plain - found.logits[i]).abs().max().item<double>(), 1e-4 * plain.abs().max().item<double>())
        << "token " << i;
    all.push_back(found.continuation.ids[i]);
  }
}

const Ids kPrompt = {5, 17, 8, 30, 11, 9, 22};

TEST(Continuation, IsThatOfThePlainModel) {
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    SCOPED_TRACE(kv_heads);
    const auto model = make_model({.kv_heads = kv_heads});
    const auto greedy = run(*model, kPrompt, {.max_tokens = 30, .context = kContext});
    ASSERT_EQ(greedy.continuation.ids.size(), 30u);
    EXPECT_EQ(greedy.continuation.end, End::kMaxTokens);
    expect_as_plain(*model, kPrompt, greedy);
    const auto drawn = run(*model, {kPrompt[0]}, {.max_tokens = 20, .context = kContext}, {.temperature = 3});
    expect_as_plain(*model, {kPrompt[0]}, drawn);
  }
}

// The plain model gives every position's logits, so one call of it checks all greedy choices: each is the argmax, and
// by far more than rounding.
TEST(Continuation, TemperatureZeroIsTheArgmaxOfAPlainForward) {
  const auto model = make_model({});
  const auto found = run(*model, kPrompt, {.max_tokens = 40, .context = kContext}).continuation.ids;
  Ids all = kPrompt;
  all.insert(all.end(), found.begin(), found.end());
  const at::NoGradGuard no_grad;
  const auto logits = (*model)(row_of(all))[0];
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto here = logits[static_cast<std::int64_t>(kPrompt.size() + i) - 1];
    const auto best = std::get<0>(here.topk(2));
    ASSERT_GT((best[0] - best[1]).item<double>(), 1e-4) << "token " << i << " is not to be told from the next best";
    EXPECT_EQ(found[i], here.argmax().item<std::int64_t>()) << "token " << i;
  }
}

// Documents that ended are not seen, whether they ended in the prompt or in the continuation.
TEST(Continuation, SeesItsOwnDocumentAlone) {
  const auto model = make_model({.block_causal = true});
  const Ids ended_before = {5, 17, kEnd, 8, kEnd, 30, 11}, ends = {5, 17, 8, kEnd};
  for (const Ids& prompt : {kPrompt, ended_before, ends})
    expect_as_plain(*model, prompt, run(*model, prompt, {.max_tokens = 12, .context = kContext}));
  // After each end token, the model continues in a new document.
  Watched forced;
  int count = 0;
  forced.continuation =
      continue_tokens(*model, kPrompt, {.max_tokens = 12, .context = kContext}, [&](const at::Tensor& logits) {
        forced.logits.push_back(logits.clone());
        return ++count % 4 == 0 ? kEnd : 10 + count;
      });
  expect_as_plain(*model, kPrompt, forced);
}

TEST(Continuation, EndsWithAStopTokenOrTheContext) {
  const auto model = make_model({});
  const auto all = run(*model, kPrompt, {.max_tokens = 1000, .context = kContext}).continuation;
  EXPECT_EQ(all.end, End::kContext);
  EXPECT_EQ(all.ids.size() + kPrompt.size(), static_cast<std::size_t>(kContext));
  const auto stop = all.ids[4];
  const auto first = static_cast<std::size_t>(std::ranges::find(all.ids, stop) - all.ids.begin());
  std::vector<std::int32_t> told;
  const auto stopped = continue_tokens(
      *model, kPrompt, {1000, kContext, {stop}},
      [](const at::Tensor& logits) { return logits.argmax().item<std::int64_t>(); },
      [&](std::int32_t id) {
        told.push_back(id);
        return true;
      });
  EXPECT_EQ(stopped.end, End::kStopToken);
  EXPECT_EQ(stopped.ids, Ids(all.ids.begin(), all.ids.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  EXPECT_EQ(told, stopped.ids);

  std::size_t wanted = 2;
  const auto ended = continue_tokens(
      *model, kPrompt, {1000, kContext, {}},
      [](const at::Tensor& logits) { return logits.argmax().item<std::int64_t>(); },
      [&](std::int32_t) { return --wanted > 0; });
  EXPECT_EQ(ended.end, End::kCaller);
  EXPECT_EQ(ended.ids, Ids(all.ids.begin(), all.ids.begin() + 2));
}

// Training after a generated text is unchanged.
TEST(Continuation, LeavesTheModelWithoutACache) {
  const auto model = make_model({});
  const at::NoGradGuard no_grad;
  const auto tokens = row_of(kPrompt);
  const auto before = (*model)(tokens);
  run(*model, kPrompt, {.max_tokens = 5, .context = kContext});
  EXPECT_TRUE((*model)(tokens).equal(before));
  EXPECT_THROW(continue_tokens(*model, kPrompt, {.max_tokens = 5, .context = kContext},
                               [](const at::Tensor&) -> std::int64_t { throw Error("no", kExitFailed); }),
               Error);
  EXPECT_TRUE((*model)(tokens).equal(before));
}

// Rows of other lengths in the same call change no row: its logits are those of the plain model.
TEST(Continuation, RowsAreContinuedTogether) {
  for (const bool block_causal : {false, true}) {
    SCOPED_TRACE(block_causal);
    const auto model = make_model({.block_causal = block_causal});
    const std::vector<Ids> prompts = {kPrompt, {5}, {5, 17, kEnd, 8, 30}, {9, 9, 9, 2, 2, 2, 1, 1, 30, 31}, {22, 4}};
    for (const std::size_t at_once : {1, 2, 3, 9}) {
      SCOPED_TRACE(at_once);
      std::vector<Watched> found(prompts.size());
      std::vector<std::size_t> begun;
      RowCalls calls;
      calls.pick = [&](const at::Tensor& logits, std::span<const std::size_t> rows) {
        EXPECT_LE(rows.size(), at_once);
        EXPECT_EQ(logits.size(0), std::ssize(rows));
        std::vector<std::int64_t> ids;
        for (std::size_t i = 0; i < rows.size(); ++i) {
          Watched& row = found[rows[i]];
          if (row.logits.empty()) begun.push_back(rows[i]);
          row.logits.push_back(logits[static_cast<std::int64_t>(i)].clone());
          // Every fourth token ends a document; the others are the row's own choice.
          ids.push_back(row.logits.size() % 4 == 0 ? kEnd : row.logits.back().argmax().item<std::int64_t>());
        }
        return ids;
      };
      // Row i ends after 3 + i tokens.
      calls.on_token = [&](std::size_t row, std::int32_t) { return found[row].logits.size() < 3 + row; };
      calls.on_end = [&](std::size_t row, Continuation continuation) { found[row].continuation = continuation; };
      continue_rows(*model, prompts, at_once, {.max_tokens = 30, .context = kContext}, calls);
      EXPECT_EQ(begun, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_EQ(found[i].continuation.ids.size(), 3 + i);
        EXPECT_EQ(found[i].continuation.end, End::kCaller);
        expect_as_plain(*model, prompts[i], found[i]);
      }
    }
  }
}

TEST(Continuation, NeedsAPromptAndRoom) {
  const auto model = make_model({});
  EXPECT_THROW(run(*model, {}, {.max_tokens = 5, .context = kContext}), InternalError);
  EXPECT_THROW(run(*model, Ids(kContext, 5), {.max_tokens = 5, .context = kContext}), InternalError);
}

}  // namespace
}  // namespace titan::generate
