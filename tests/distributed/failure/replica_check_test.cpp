// Tests on real ranks that copies which differ by one bit are found and named, on each kind of mesh that has copies.
#include "train/guests/numerics/replica_check.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/process/rank_process.h"
#include "models/registry.h"
#include "optim/adamw.h"
#include "tests/support/run_ranks.h"
#include "train/build_model.h"
#include "train/setup.h"

namespace titan::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ranks = std::vector<std::vector<int>>;

config::JobConfig small_job() {
  config::JobConfig job;
  job.model.args.dim = 32;
  job.model.args.n_layers = 2;
  job.model.args.n_heads = 4;
  job.model.args.n_kv_heads = 2;
  job.model.args.vocab_size = 64;
  job.model.args.multiple_of = 8;
  job.activation_checkpoint.mode = "none";
  return job;
}

config::JobConfig job_on(int replicate, int shard, int tp = 1, int pp = 1) {
  config::JobConfig job = small_job();
  job.parallelism.data_parallel_replicate_degree = replicate;
  job.parallelism.data_parallel_shard_degree = shard;
  job.parallelism.tensor_parallel_degree = tp;
  job.parallelism.pipeline_parallel_degree = pp;
  job.training.local_batch_size = pp;
  return job;
}

// Inverts the lowest bit of the first element.
void flip(const at::Tensor& tensor) { tensor.detach().view({-1}).view(at::kByte)[0].bitwise_xor_(1); }

// Has weights and optimizer state as a run has them before its first step, and compares their copies.
struct Copies {
  Copies(dist::World& world_, const config::JobConfig& job_)
      : world(world_),
        job(job_),
        meshes(dist::Meshes::build(world, dist::ParallelDims::from_config(job.parallelism, world.size()))),
        spec(models::make_train_spec(job.model, job.lora, /*seq_len=*/8)),
        built(build_on_meta(spec, std::nullopt, {meshes, job}, at::kCPU)) {
    materialize(*built.model, at::kCPU, job);
    draw_weights(*built.model, at::kCPU, /*seed=*/7);
    parameters.emplace(*built.model, built.slots, stored_dtypes(job));
    optimizer.emplace(parameters->to_train(), optim::AdamWOptions{.state_dtype = at::kBFloat16});
    check.emplace(*parameters, *optimizer, meshes, world.group());
  }

  // Flips a bit of this rank's part of a parameter, or of its optimizer state, if `rank` is this one.
  void flip_on(int rank, const std::string& fqn, const std::string& state = "") {
    if (world.rank() != rank) return;
    for (const auto& each : *parameters)
      if (state.empty() && each.fqn == fqn) return flip(each.local.value().tensor());
    for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
      if (optimizer->parameters()[i].fqn == fqn)
        for (const auto& each : optimizer->state(i))
          if (each.name == state) return flip(each.tensor);
    FAIL() << "there is no " << state << " of " << fqn;
  }

  // Expects that exactly this tensor differs.
  void expect_found(const std::string& tensor, const Ranks& ranks) {
    const auto report = check->run();
    ASSERT_EQ(report.differences.size(), 1U) << tensor;
    EXPECT_EQ(report.differences[0].tensor, tensor);
    EXPECT_EQ(report.differences[0].ranks, ranks) << tensor;
    EXPECT_EQ(report.hosts, std::vector<std::string>(static_cast<std::size_t>(world.size()), host_name()));
  }
  void expect_equal() { EXPECT_TRUE(check->run().differences.empty()); }

  dist::World& world;
  config::JobConfig job;
  dist::Meshes meshes;
  TrainSpec spec;
  BuiltModel built;
  std::optional<RunParameters> parameters;
  std::optional<optim::AdamW> optimizer;
  std::optional<ReplicaCheck> check;
};

TEST(ReplicaCheck, TwoCopiesOfEveryShard) {
  test::on_ranks(4, [](dist::World& world) {
    Copies copies(world, job_on(/*replicate=*/2, /*shard=*/2));
    copies.expect_equal();
    copies.flip_on(3, "layers.1.attention.wo.weight");
    copies.expect_found("layers.1.attention.wo.weight", {{1}, {3}});
    copies.flip_on(1, "layers.1.attention.wo.weight");
    copies.expect_equal();  // the same bit of both copies
    copies.flip_on(2, "layers.0.feed_forward.w1.weight", "exp_avg_sq");
    copies.expect_found("exp_avg_sq of layers.0.feed_forward.w1.weight", {{0}, {2}});
    copies.flip_on(2, "layers.0.feed_forward.w1.weight", "exp_avg_sq");
    copies.flip_on(0, "norm.weight", "step");
    copies.expect_found("step of norm.weight", {{1, 2, 3}, {0}});  // 0-d: the same on all ranks
  });
}

TEST(ReplicaCheck, TheOneOfThreeIsWrong) {
  test::on_ranks(3, [](dist::World& world) {
    Copies copies(world, job_on(/*replicate=*/3, /*shard=*/1));
    copies.flip_on(1, "output.weight", "exp_avg");
    copies.expect_found("exp_avg of output.weight", {{0, 2}, {1}});
    const auto report = copies.check->run();
    EXPECT_THAT(report.suspects(), ElementsAre(1));
    EXPECT_EQ(describe(report),
              "exp_avg of output.weight (rank 1 differs from ranks 0, 2); rank 1 of " + host_name() + " is in doubt");
  });
}

TEST(ReplicaCheck, TensorParallelRanksHaveCopiesOfNorms) {
  test::on_ranks(2, [](dist::World& world) {
    Copies copies(world, job_on(/*replicate=*/1, /*shard=*/1, /*tp=*/2));
    copies.flip_on(1, "layers.0.attention.wq.weight");  // nobody else has this part
    copies.expect_equal();
    copies.flip_on(1, "layers.0.attention_norm.weight");
    copies.expect_found("layers.0.attention_norm.weight", {{0}, {1}});
    EXPECT_EQ(
        describe(copies.check->run()),
        "layers.0.attention_norm.weight (rank 1 differs from rank 0; either may be the wrong one); ranks 0, 1 of " +
            host_name() + " are in doubt");
  });
}

TEST(ReplicaCheck, FourCopiesOverTwoAxes) {
  test::on_ranks(4, [](dist::World& world) {
    Copies copies(world, job_on(/*replicate=*/2, /*shard=*/1, /*tp=*/2));
    copies.expect_equal();
    copies.flip_on(2, "norm.weight");
    copies.expect_found("norm.weight", {{0, 1, 3}, {2}});
    copies.flip_on(2, "layers.0.attention.wq.weight");
    const auto report = copies.check->run();
    ASSERT_EQ(report.differences.size(), 2U);
    EXPECT_EQ(report.differences[0].ranks, (Ranks{{0}, {2}}));
    EXPECT_THAT(describe(report), HasSubstr("ranks 0, 2 of "));
  });
}

TEST(ReplicaCheck, StagesHaveCopiesOfATiedParameter) {
  test::on_ranks(2, [](dist::World& world) {
    auto job = job_on(/*replicate=*/1, /*shard=*/1, /*tp=*/1, /*pp=*/2);
    job.model.args.enable_weight_tying = true;
    Copies copies(world, job);
    copies.expect_equal();
    copies.flip_on(1, "tok_embeddings.weight");  // of which rank 1 has the output projection
    copies.expect_found("tok_embeddings.weight", {{0}, {1}});
  });
}

TEST(ReplicaCheck, StagesOfSeveralReplicas) {
  test::on_ranks(4, [](dist::World& world) {
    auto job = job_on(/*replicate=*/2, /*shard=*/1, /*tp=*/1, /*pp=*/2);
    job.model.args.enable_weight_tying = true;
    Copies copies(world, job);
    copies.expect_equal();
    copies.flip_on(0, "tok_embeddings.weight");
    copies.expect_found("tok_embeddings.weight", {{1, 2, 3}, {0}});
    copies.flip_on(0, "tok_embeddings.weight");
    copies.flip_on(3, "norm.weight");
    copies.expect_found("norm.weight", {{2}, {3}});
  });
}

// The first stage has no adapter, hence no optimizer state.
TEST(ReplicaCheck, FrozenWeightsAndAdapters) {
  test::on_ranks(4, [](dist::World& world) {
    auto job = job_on(/*replicate=*/2, /*shard=*/1, /*tp=*/1, /*pp=*/2);
    job.lora.rank = 2;
    job.lora.targets = {"layers.1.attention.wq"};
    job.lora.base_dtype = "bfloat16";
    Copies copies(world, job);
    copies.expect_equal();
    copies.flip_on(1, "tok_embeddings.weight");
    copies.expect_found("tok_embeddings.weight", {{0}, {1}});
    copies.flip_on(1, "tok_embeddings.weight");
    copies.flip_on(2, "layers.1.attention.wq.lora_B", "exp_avg");
    copies.expect_found("exp_avg of layers.1.attention.wq.lora_B", {{2}, {3}});
  });
}

TEST(ReplicaCheck, ShardsHaveNoCopies) {
  test::on_ranks(2, [](dist::World& world) {
    Copies copies(world, job_on(/*replicate=*/1, /*shard=*/2));
    EXPECT_FALSE(copies.check->has_copies());
    copies.expect_equal();
  });
}

}  // namespace
}  // namespace titan::train
