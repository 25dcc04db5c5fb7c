// Tests a Llama on meshes with tensor parallelism against the same Llama on one device: weights, loss, gradients, norm.
//
// In float32 the two differ only by the order of sums: of D products in a projection that is split over ranks by rows,
// of V exponentials in the loss, of T tokens in the gradient of a norm. Each sum of n terms has an error of about
// sqrt(n) units in the last place, 6e-8 each. The deepest path crosses some thirty of them with n up to 64, so that
// 1e-5 of the largest value of a tensor holds with a margin of about 10.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/parallel_dims.h"
#include "distributed/tensor/dtensor.h"
#include "models/common/decoder.h"
#include "models/common/parallelize.h"
#include "models/llama3/flavors.h"
#include "nn/init.h"
#include "optim/clip_grad_norm.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/run_ranks.h"

namespace titan::models {
namespace {

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kB = 2, kT = 8;

struct Case {
  int tp = 1, dp_shard = 1, dp_replicate = 1;
  std::int64_t vocab = 32;
  std::string recompute = "none";
  bool gathers_logits = false;
  bool overlaps = false;
  bool biased = false;
};

DecoderShape small(const Case& which) {
  LlamaArgs args;
  args.dim = 32;
  args.n_layers = 2;
  args.n_heads = 4;
  args.n_kv_heads = 2;
  args.vocab_size = which.vocab;
  args.multiple_of = 8;
  DecoderShape shape = args.decoder();
  shape.block.attention.qkv_bias = which.biased;
  return shape;
}

std::unique_ptr<Decoder> make_llama(const Case& which, const dist::Meshes* meshes) {
  config::JobConfig job;
  job.training.mixed_precision_param = "float32";
  job.parallelism.disable_loss_parallel = which.gathers_logits;
  job.parallelism.enable_async_tensor_parallel = which.overlaps;
  job.activation_checkpoint.mode = which.recompute;
  job.activation_checkpoint.selective_ac_option = "op";
  auto model = std::make_unique<Decoder>(small(which), kT);
  if (meshes)
    for (const ModelPass& pass : decoder_passes()) pass.apply(*model, {*meshes, job});
  fsdp::to_empty(*model, at::kCPU);
  const at::NoGradGuard no_grad;
  nn::SequentialInitializer initializer(7);
  model->init_weights(initializer, at::kCPU);
  for (const auto& parameter : model->named_parameters())  // zeros would hide a bias that is added twice
    if (parameter.fqn.ends_with(".bias")) initializer.normal(parameter, 0, 0.5);
  return model;
}

// Returns tokens and labels of batch `index`; label 0 of each row does not count.
std::pair<at::Tensor, at::Tensor> batch_of(int index, std::int64_t vocab) {
  const auto window = at::randint(vocab, {kB, kT + 1},
                                  at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + index)), at::kLong);
  auto labels = window.narrow(1, 1, kT).clone();
  labels.select(1, 0).fill_(-100);
  return {window.narrow(1, 0, kT).contiguous(), labels};
}

struct Result {
  double loss = 0;
  std::vector<at::Tensor> weights, grads;  // full
  double norm = 0;
};

at::Tensor whole(const nn::NamedParameter& parameter, const at::Tensor& local) {
  const auto& sharding = parameter.parameter->sharding;
  return sharding ? dist::DTensor(local, *sharding).full_tensor() : local;
}

// Runs forward and backward on the two microbatches of `batch_rank`.
Result run(Decoder& model, int batch_rank, std::int64_t vocab) {
  Result result;
  for (const auto& parameter : model.named_parameters())
    result.weights.push_back(whole(parameter, parameter.tensor().detach()).clone());
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    const auto [tokens, labels] = batch_of(2 * batch_rank + microbatch, vocab);
    const auto loss = model(tokens, labels);
    loss.backward();
    result.loss += loss.item<double>();
  }
  std::vector<optim::ShardedGrad> sharded;
  for (const auto& parameter : model.named_parameters()) {
    const auto grad = parameter.tensor().grad();
    result.grads.push_back(whole(parameter, grad));
    sharded.push_back({grad, optim::groups_that_cut(parameter.parameter->sharding)});
  }
  result.norm = optim::total_norm(sharded).item<double>();
  return result;
}

// `terms`: a tensor as large as the terms that `want` is the sum of.
void expect_near(const at::Tensor& got, const at::Tensor& want, const at::Tensor& terms, const std::string& what) {
  const double largest = terms.abs().max().item<double>();
  EXPECT_LE((got - want).abs().max().item<double>(), kTolerance * largest) << what;
}

void expect_same_as_one_rank(const Case& which) {
  const int ranks = which.tp * which.dp_shard * which.dp_replicate;
  test::on_ranks(ranks, [&](dist::World& world) {
    const auto meshes = dist::Meshes::build(
        world, {.dp_replicate = which.dp_replicate, .dp_shard = which.dp_shard, .tp = which.tp, .world_size = ranks});
    const auto model = make_llama(which, &meshes);
    const int num_batches = which.dp_shard * which.dp_replicate;
    auto got = run(*model, meshes.batch.local_rank("batch"), which.vocab);
    auto loss = at::full({}, got.loss, at::kDouble);
    meshes.loss.group().all_reduce(loss, dist::ReduceOp::kSum).wait();

    const auto reference = make_llama({.vocab = which.vocab, .biased = which.biased}, nullptr);
    Result want;
    for (int batch = 0; batch < num_batches; ++batch) want = run(*reference, batch, which.vocab);  // gradients add up
    double want_loss = 0;
    for (int batch = 0; batch < 2 * num_batches; ++batch) {
      const auto [tokens, labels] = batch_of(batch, which.vocab);
      const at::NoGradGuard no_grad;
      want_loss += (*reference)(tokens, labels).item<double>();
    }

    EXPECT_NEAR(loss.item<double>(), want_loss, kTolerance * want_loss);
    EXPECT_NEAR(got.norm, want.norm, kTolerance * want.norm);
    const auto names = model->named_parameters();
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_TRUE(got.weights[i].equal(want.weights[i])) << names[i].fqn;
      // A bias's gradient is the sum of the projection's over all tokens. For keys its terms nearly cancel, as the
      // gradient of a softmax sums to 0, and the error is that of the terms. The weight, which comes before the bias,
      // sums the same terms times inputs of RMS 1, which do not cancel.
      const bool is_bias = names[i].fqn.ends_with(".bias");
      expect_near(got.grads[i], want.grads[i], want.grads[is_bias ? i - 1 : i], names[i].fqn);
    }
  });
}

TEST(LlamaTensorParallel, Two) { expect_same_as_one_rank({.tp = 2}); }
TEST(LlamaTensorParallel, TwoTimesFullyShardedTwo) { expect_same_as_one_rank({.tp = 2, .dp_shard = 2}); }
TEST(LlamaTensorParallel, TwoTimesHybridSharded) {
  expect_same_as_one_rank({.tp = 2, .dp_shard = 2, .dp_replicate = 2});
}
TEST(LlamaTensorParallel, TwoWithGatheredLogits) { expect_same_as_one_rank({.tp = 2, .gathers_logits = true}); }
TEST(LlamaTensorParallel, UnevenVocabulary) { expect_same_as_one_rank({.tp = 2, .dp_shard = 2, .vocab = 29}); }
TEST(LlamaTensorParallel, UnevenVocabularyGathered) {
  expect_same_as_one_rank({.tp = 2, .vocab = 29, .gathers_logits = true});
}
TEST(LlamaTensorParallel, Overlapped) { expect_same_as_one_rank({.tp = 2, .overlaps = true}); }
TEST(LlamaTensorParallel, OverlappedAndRecomputedWhole) {
  expect_same_as_one_rank({.tp = 2, .dp_shard = 2, .recompute = "full", .overlaps = true});
}
TEST(LlamaTensorParallel, OverlappedAndRecomputedByOperator) {
  expect_same_as_one_rank({.tp = 2, .recompute = "selective", .overlaps = true});
}
TEST(LlamaTensorParallel, Biased) { expect_same_as_one_rank({.tp = 2, .dp_shard = 2, .biased = true}); }
TEST(LlamaTensorParallel, BiasedAndOverlapped) {
  expect_same_as_one_rank({.tp = 2, .recompute = "selective", .overlaps = true, .biased = true});
}
TEST(LlamaTensorParallel, RecomputedWhole) { expect_same_as_one_rank({.tp = 2, .recompute = "full"}); }
TEST(LlamaTensorParallel, RecomputedByOperator) {
  expect_same_as_one_rank({.tp = 2, .dp_shard = 2, .recompute = "selective"});
}

}  // namespace
}  // namespace titan::models
