// Tests which attention the program lets PyTorch choose on a device: one without a plan for each length, and one that
// keeps no scores. PyTorch's own choice needs a GPU; here an observer sees what it may choose from.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "contract/model.h"
#include "distributed/process_group.h"
#include "generate/cached_model.h"
#include "generate/kv_cache.h"
#include "nn/layers.h"
#include "nn/ops/fused_attention.h"
#include "nn/ops/kept_ops.h"
#include "nn/ops/meta_run.h"
#include "tests/support/simulated_device/simulated_device.h"
#include "train/guests/scores/log_likelihoods.h"

namespace titan {
namespace {

using testing::ElementsAre;

struct Seen {
  std::vector<bool> allows_cudnn;
  std::vector<std::int64_t> heads_of_keys;
};

Seen* g_seen = nullptr;

std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function) {
  if (std::string_view(function.name()) != "aten::scaled_dot_product_attention") return nullptr;
  g_seen->allows_cudnn.push_back(at::globalContext().userEnabledCuDNNSDP());
  g_seen->heads_of_keys.push_back(function.inputs()[1].toTensor().size(1));
  return nullptr;
}

// Returns what PyTorch may choose from in the attentions that `body` calls on this thread.
template <typename Body>
Seen watch(const Body& body) {
  Seen seen;
  g_seen = &seen;
  const auto observer = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&look).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  body();
  at::removeCallback(observer);
  return seen;
}

// While it lives, the user allows these kernels.
class Allowed {
 public:
  Allowed(bool cudnn, bool flash) {
    set(cudnn, flash);
    at::globalContext().setSDPUseMemEfficient(false);
  }
  ~Allowed() {
    set(true, true);
    at::globalContext().setSDPUseMemEfficient(true);
  }
  Allowed(const Allowed&) = delete;
  Allowed& operator=(const Allowed&) = delete;

 private:
  static void set(bool cudnn, bool flash) {
    at::globalContext().setSDPUseCuDNN(cudnn);
    at::globalContext().setSDPUseFlash(flash);
  }
};

at::Tensor ones(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  return at::ones(sizes, at::TensorOptions(dtype).device(device));
}

// cuDNN makes a plan for each length, in 0.05 to 0.2 s. A prompt has its own, and a cache another one for each token.
TEST(SimulatedAttention, OfACacheLeavesCudnnOut) {
  sim::install();
  const at::NoGradGuard no_grad;
  ASSERT_TRUE(at::globalContext().userEnabledCuDNNSDP());
  generate::KvCache cache(/*capacity=*/6);
  const std::vector<generate::KvCache*> rows = {&cache};
  generate::CachedCore core(rows, /*layer=*/0);
  const auto seen = watch([&] {
    for (const std::int64_t num_tokens : {3, 1, 1}) {
      const auto q = ones({1, 4, num_tokens, 8}, at::kFloat, sim::device());
      const auto k = ones({1, 2, num_tokens, 8}, at::kFloat, sim::device());
      core.forward({q, k, k});
      cache.finish_call(num_tokens, 0);
    }
  });
  EXPECT_THAT(seen.allows_cudnn, ElementsAre(false, false, false));
  EXPECT_TRUE(at::globalContext().userEnabledCuDNNSDP()) << "the user's choice holds again";
}

// A model that only notes whether PyTorch may choose cuDNN in its calls.
class NotingNet : public LanguageModel {
 public:
  NotingNet() { child("output", output_, std::make_shared<nn::Linear>(8, 8)); }
  at::Tensor forward(const nn::Tensors& inputs) override {
    allows_cudnn.push_back(at::globalContext().userEnabledCuDNNSDP());
    return at::zeros({1, inputs[0].numel(), 8}, at::TensorOptions().device(sim::device()));
  }
  nn::Module& output() override { return *output_; }
  void init_weights(nn::Initializer& /*initializer*/, at::Device /*buffer_device*/) override {}
  std::vector<bool> allows_cudnn;

 private:
  std::shared_ptr<nn::Linear> output_;
};

// Each call of an evaluation has a length of its own.
TEST(SimulatedAttention, OfScoredTextsLeavesCudnnOut) {
  sim::install();
  const at::NoGradGuard no_grad;
  NotingNet net;
  const std::vector<ScoredText> texts = {{.tokens = {1, 2, 3}, .num_scored = 2}, {.tokens = {4, 5}, .num_scored = 1}};
  dist::ProcessGroup group("alone", {0}, 0, nullptr, nullptr);
  train::LogLikelihoods(texts, {.batch_size = 1, .vocab_size = 8}).compute(net, sim::device(), group, [] {
    return false;
  });
  EXPECT_THAT(net.allows_cudnn, ElementsAre(false, false));
  EXPECT_TRUE(at::globalContext().userEnabledCuDNNSDP()) << "the user's choice holds again";
}

// A user who compares kernels gets the one that was chosen, where it needs no plans.
TEST(SimulatedAttention, WithoutPlansIsTheUsersChoiceOtherwise) {
  sim::install();
  const auto& context = at::globalContext();
  {
    const Allowed formula(/*cudnn=*/false, /*flash=*/false);
    const nn::AttentionWithoutPlans any_length(sim::device());
    EXPECT_FALSE(context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP());
    EXPECT_TRUE(context.userEnabledMathSDP());
  }
  const Allowed cudnn(/*cudnn=*/true, /*flash=*/false);
  at::globalContext().setSDPUseMath(false);
  {
    const nn::AttentionWithoutPlans any_length(sim::device());
    EXPECT_FALSE(context.userEnabledCuDNNSDP());
    EXPECT_TRUE(context.userEnabledFlashSDP() && context.userEnabledMemEfficientSDP());
  }
  EXPECT_FALSE(context.userEnabledFlashSDP() || context.userEnabledMathSDP()) << "restored";
  at::globalContext().setSDPUseMath(true);
}

// One document after the other would be a plan for each length, and cuDNN refuses a document of one token.
TEST(SimulatedAttention, OfDocumentsIsOneKernelAlsoWhereCudnnIsChosen) {
  sim::install();
  const auto q = ones({6, 4, 8}, at::kBFloat16, sim::device()), k = ones({6, 2, 8}, at::kBFloat16, sim::device());
  EXPECT_TRUE(nn::attends_within_documents(q, k, k));
  {
    const Allowed cudnn(/*cudnn=*/true, /*flash=*/false);
    EXPECT_TRUE(nn::attends_within_documents(q, k, k));
  }
  const Allowed formula(/*cudnn=*/false, /*flash=*/false);
  EXPECT_FALSE(nn::attends_within_documents(q, k, k));
}

// PyTorch's kernel of float32 takes as many heads of keys as of queries. The formula, which would be left, keeps scores
// of the square of the length.
TEST(SimulatedAttention, InFloat32RepeatsKeysOfGroupedQueries) {
  sim::install();
  const at::NoGradGuard no_grad;
  const auto heads_of_keys = [](at::ScalarType dtype, c10::Device device) {
    const auto q = ones({1, 4, 6, 8}, dtype, device), k = ones({1, 2, 6, 8}, dtype, device);
    return watch([&] { nn::causal_attention(q, k, k); }).heads_of_keys;
  };
  EXPECT_THAT(heads_of_keys(at::kFloat, sim::device()), ElementsAre(4));
  EXPECT_THAT(heads_of_keys(at::kBFloat16, sim::device()), ElementsAre(2));
  EXPECT_THAT(heads_of_keys(at::kFloat, at::kCPU), ElementsAre(2));
}

// The forecast of a GPU's memory counts the keys that the GPU repeats.
TEST(SimulatedAttention, InFloat32RepeatsKeysInADryRunOfAGpu) {
  const auto q = at::empty({1, 4, 6, 8}, at::kMeta), k = at::empty({1, 2, 6, 8}, at::kMeta);
  EXPECT_FALSE(nn::needs_a_key_for_each_query(q, k));
  meta_run::stand_for_gpu(true);
  EXPECT_TRUE(nn::needs_a_key_for_each_query(q, k));
  EXPECT_FALSE(nn::needs_a_key_for_each_query(q, q)) << "each query has a key of its own";
  EXPECT_FALSE(nn::needs_a_key_for_each_query(q.to(at::kBFloat16), k.to(at::kBFloat16)));
  meta_run::stand_for_gpu(false);
}

}  // namespace
}  // namespace titan
