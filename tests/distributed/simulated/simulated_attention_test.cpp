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

#include "generate/kv_cache.h"
#include "nn/ops/fused_attention.h"
#include "nn/ops/kept_ops.h"
#include "nn/ops/meta_run.h"
#include "tests/support/simulated_device/simulated_device.h"

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

// cuDNN makes a plan for each length, in 0.05 to 0.2 s, and a cache has another length for each token.
TEST(SimulatedAttention, OfACacheLeavesCudnnOut) {
  sim::install();
  const at::NoGradGuard no_grad;
  ASSERT_TRUE(at::globalContext().userEnabledCuDNNSDP());
  generate::KvCache cache(/*capacity=*/4);
  const auto seen = watch([&] {
    for (int token = 0; token < 3; ++token) {
      const auto of_keys = ones({1, 2, 1, 8}, at::kFloat, sim::device());
      cache.store(0, of_keys, of_keys);
      cache.attend(0, ones({1, 4, 1, 8}, at::kFloat, sim::device()));
      cache.finish_call(1, 0);
    }
  });
  EXPECT_THAT(seen.allows_cudnn, ElementsAre(false, false, false));
  EXPECT_TRUE(at::globalContext().userEnabledCuDNNSDP()) << "the user's choice holds again";
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
