// Tests activation checkpointing of a Llama with grouped heads, as [activation_checkpoint] asks for it: results are
// equal to the last bit; and what each mode keeps and recomputes.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <map>

#include "base/env.h"
#include "base/error.h"
#include "kernels/operators.h"
#include "models/common/parallelize.h"
#include "models/llama3/flavors.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::models {
namespace {

constexpr std::int64_t kLayers = 3, kT = 32;

// Counts calls of operators by name.
class OperatorCounter {
 public:
  OperatorCounter() {
    current() = &calls_;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_call).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCounter() { at::removeCallback(handle_); }
  OperatorCounter(const OperatorCounter&) = delete;
  OperatorCounter& operator=(const OperatorCounter&) = delete;
  int operator[](const std::string& name) const {
    const auto found = calls_.find(name);
    return found == calls_.end() ? 0 : found->second;
  }

 private:
  static std::map<std::string, int>*& current() {
    static std::map<std::string, int>* calls = nullptr;
    return calls;
  }
  static std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function) {
    ++(*current())[function.name()];
    return nullptr;
  }
  std::map<std::string, int> calls_;
  at::CallbackHandle handle_;
};

// Bytes of tensors that were allocated since its construction and are alive.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override { bytes += size; }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t bytes = 0;
};

struct Outcome {
  at::Tensor loss;
  std::vector<at::Tensor> grads;
  int linears = 0;     // matmuls, including those of backward
  int attentions = 0;  // forwards
  std::int64_t live_after_forward = 0;
};

config::ActivationCheckpoint mode(const std::string& name, const std::string& option = "2") {
  config::ActivationCheckpoint ac;
  ac.mode = name;
  ac.selective_ac_option = option;
  return ac;
}

Outcome run(const config::ActivationCheckpoint& ac, const std::string& dtype = "float32", bool block_causal = false) {
  LlamaArgs args;
  args.dim = 32;
  args.n_layers = kLayers;
  args.n_heads = 4;
  args.n_kv_heads = 2;
  args.vocab_size = 40;
  args.multiple_of = 16;
  args.block_causal = block_causal;
  dist::World world(LaunchEnv{}, c10::DeviceType::CPU, std::chrono::seconds(10));
  const auto meshes = dist::Meshes::build(world, {});
  Decoder model(args.decoder(), kT, /*document_end=*/3);
  config::JobConfig job;
  job.training.mixed_precision_param = dtype;
  job.activation_checkpoint = ac;
  for (const ModelPass& pass : decoder_passes()) pass.apply(model, {meshes, job});
  fsdp::to_empty(model, at::kCPU);
  {
    const at::NoGradGuard no_grad;
    nn::SequentialInitializer initializer(7);
    model.init_weights(initializer, at::kCPU);
  }
  auto tokens = at::randint(40, {2, kT}, at::detail::createCPUGenerator(5), at::kLong);
  tokens.masked_fill_(tokens.lt(8), 3);  // every fifth one ends a document

  Outcome outcome;
  const OperatorCounter calls;
  const auto live = std::make_shared<LiveBytes>();
  const c10::DebugInfoGuard watch(c10::DebugInfoKind::PROFILER_STATE, live);
  const auto logits = model(tokens);
  outcome.live_after_forward = live->bytes;
  outcome.loss = at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), tokens.flatten().roll(1));
  torch::autograd::backward({outcome.loss}, {});
  outcome.linears = calls["aten::mm"];
  outcome.attentions = calls["aten::_scaled_dot_product_flash_attention_for_cpu"];
  for (const auto& parameter : model.named_parameters()) outcome.grads.push_back(parameter.tensor().grad());
  return outcome;
}

void expect_equal(const Outcome& found, const Outcome& expected) {
  EXPECT_TRUE(found.loss.equal(expected.loss));
  ASSERT_EQ(found.grads.size(), expected.grads.size());
  for (std::size_t i = 0; i < expected.grads.size(); ++i) {
    EXPECT_TRUE(expected.grads[i].defined() && found.grads[i].equal(expected.grads[i])) << "gradient " << i;
  }
}

class RecomputedLlama : public testing::TestWithParam<std::string> {};

TEST_P(RecomputedLlama, NumbersAreThoseWithoutToTheLastBit) {
  const auto plain = run(mode("none"), GetParam());
  EXPECT_GT(plain.grads[1].abs().max().item<float>(), 0);
  expect_equal(run(mode("full"), GetParam()), plain);
  expect_equal(run(mode("selective", "2"), GetParam()), plain);
  expect_equal(run(mode("selective", "op"), GetParam()), plain);
}

// Each document is a separate attention call, kept or recomputed.
TEST_P(RecomputedLlama, NumbersAreThoseWithoutUnderBlockCausalMasks) {
  const auto plain = run(mode("none"), GetParam(), true);
  const int documents = plain.attentions / kLayers;
  EXPECT_GT(documents, 2);
  EXPECT_FALSE(plain.loss.equal(run(mode("none"), GetParam()).loss));
  const auto full = run(mode("full"), GetParam(), true);
  expect_equal(full, plain);
  EXPECT_EQ(full.attentions, 2 * kLayers * documents);
  const auto by_operator = run(mode("selective", "op"), GetParam(), true);
  expect_equal(by_operator, plain);
  EXPECT_EQ(by_operator.attentions, kLayers * documents);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RecomputedLlama, testing::Values("float32", "bfloat16"));

// A block has seven matmuls (wq, wk, wv, wo, w1, w3, w2); the odd ones are kept, three are recomputed. The output
// layer has one. Each has two in backward.
TEST(RecomputedOperators, AreCounted) {
  const int products = 3 * (7 * kLayers + 1);
  EXPECT_EQ(run(mode("none")).linears, products);
  EXPECT_EQ(run(mode("none")).attentions, kLayers);
  EXPECT_EQ(run(mode("full")).linears, products + 7 * kLayers);
  EXPECT_EQ(run(mode("full")).attentions, 2 * kLayers);
  EXPECT_EQ(run(mode("selective", "2")).linears, products + 7);
  EXPECT_EQ(run(mode("selective", "op")).linears, products + 3 * kLayers);
  EXPECT_EQ(run(mode("selective", "op")).attentions, kLayers);
}

// Naming wq covers wq and wo (32 -> 32): recomputed and not counted. Of wk, wv, w1, w3, w2 the odd ones are kept.
TEST(RecomputedOperators, NamedShapesAreAlwaysRecomputed) {
  auto ac = mode("selective", "op");
  ac.per_op_sac_force_recompute_mm_shapes_by_fqns = {"attention.wq"};
  const auto outcome = run(ac);
  EXPECT_EQ(outcome.linears, 3 * (7 * kLayers + 1) + 4 * kLayers);
  expect_equal(outcome, run(mode("none")));
  ac.per_op_sac_force_recompute_mm_shapes_by_fqns = {"attention"};
  EXPECT_THROW(run(ac), ConfigError);
}

TEST(RecomputedOperators, AreChosenByANumberOrAWord) {
  for (const char* option : {"two", "0", "-1", "2 ", "", "99999999999999999999"})
    EXPECT_THROW(run(mode("selective", option)), ConfigError) << option;
}

std::int64_t random_state_bytes() {
  return static_cast<std::int64_t>(at::detail::getDefaultCPUGenerator().get_state().nbytes());
}

TEST(RecomputedOperators, KeepLessThanAll) {
  const auto none = run(mode("none")).live_after_forward;
  const auto by_operator = run(mode("selective", "op")).live_after_forward;
  const auto full = run(mode("full")).live_after_forward;
  // Kept per row of a block, by width: wq 32, wv 16, attention 32 and 4 heads' sums, w1 96 (the hidden width) and w2
  // 32. Both modes keep the input, 32. The rest (embedding, logits) is the same in each.
  const std::int64_t rows = 2 * kT * kLayers * static_cast<std::int64_t>(sizeof(float));
  EXPECT_EQ(by_operator - full, rows * (32 + 16 + 32 + 4 + 96 + 32));
  // Without recomputation: the outputs of two norms, 32 and a factor of each row; q, k and v, 32 + 16 + 16; attention
  // as above; the sum after it, 32; w1, w3 and their product, 96 each. ATen's operators would keep copies as well.
  const std::int64_t without = none - full + kLayers * random_state_bytes();  // kept by recomputation only
  const std::int64_t activations = rows * (2 * (32 + 1) + 64 + 32 + 4 + 32 + 3 * 96);
  EXPECT_TRUE(kernels::uses_fused_kernels(c10::DeviceType::CPU) ? without == activations : without > activations)
      << without;
}

}  // namespace
}  // namespace titan::models
