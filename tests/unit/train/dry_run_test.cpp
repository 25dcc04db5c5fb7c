#include "train/dry_run/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/train/support.h"

namespace titan::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

DryRun run_on(const config::JobConfig& config, int world_size, const std::string& device) {
  return dry_run(config, spec_of(config), world_size, named_device(device));
}

config::JobConfig with_batch(std::int64_t size) {
  auto config = config_of_8b();
  config.training.local_batch_size = size;
  return config;
}

TEST(DryRun, CountsTokensAndArithmetic) {
  auto config = with_batch(2);
  config.training.global_batch_size = 64;
  const auto run = run_on(config, 8, "H200");
  EXPECT_EQ(run.parameters, 8'030'261'248);
  EXPECT_EQ(run.sequences_per_step, 64);
  EXPECT_EQ(run.tokens_per_step, 64 * 8192);
  EXPECT_NEAR(run.flops_per_step(), static_cast<double>(run.flops_per_token) * 64 * 8192, 1);
  EXPECT_EQ(run.checkpoint.full, 12 * run.parameters);
  EXPECT_EQ(run.checkpoint.model, 4 * run.parameters);  // export_dtype is float32 by default
}

TEST(DryRun, AGpuNeedsMoreThanTensors) {
  const auto demand = run_on(with_batch(1), 8, "H200").demand;
  EXPECT_EQ(demand.total(), demand.memory.peak() + demand.memory.pooled + kContextBytes + kCommunicatorBytes);
  EXPECT_GT(demand.memory.pooled, 0);
  auto copies = with_batch(1);
  copies.parallelism.data_parallel_replicate_degree = 2;
  EXPECT_EQ(run_on(copies, 8, "H200").demand.communicators, 2 * kCommunicatorBytes);
  copies.training.mixed_precision_param = "float16";  // whose scaler asks all ranks
  EXPECT_EQ(run_on(copies, 8, "H200").demand.communicators, 3 * kCommunicatorBytes);
  EXPECT_EQ(run_on(with_batch(1), 1, "H200").demand.communicators, 0);
}

TEST(DryRun, ShowsEveryAxisAndCountsItsCommunicators) {
  struct Row {
    std::int64_t replicate, shard, tensor;
    const char* reshard;
    int communicators;
    const char* words;
  };
  // One along each axis, and one of the neighbors that a forward shards again over.
  constexpr Row kRows[] = {
      {1, 8, 1, "default", 1, "8 ranks = 1 replica x 8 shards"},
      {8, 1, 1, "default", 1, "8 ranks = 8 replicas x 1 shard"},
      {2, 4, 1, "default", 2, "8 ranks = 2 replicas x 4 shards"},
      {1, 1, 8, "default", 1, "8 ranks = 1 replica x 1 shard x 8 parts of each layer"},
      {1, 4, 2, "default", 2, "8 ranks = 1 replica x 4 shards x 2 parts of each layer"},
      {2, 1, 4, "default", 2, "8 ranks = 2 replicas x 1 shard x 4 parts of each layer"},
      {2, 2, 2, "default", 3, "8 ranks = 2 replicas x 2 shards x 2 parts of each layer"},
      {1, 8, 1, "4", 2, "8 ranks = 1 replica x 8 shards"},
  };
  for (const Row& row : kRows) {
    auto config = config_of_1b(/*layers=*/1);
    config.parallelism.data_parallel_replicate_degree = row.replicate;
    config.parallelism.data_parallel_shard_degree = row.shard;
    config.parallelism.tensor_parallel_degree = row.tensor;
    config.parallelism.fsdp_reshard_after_forward = row.reshard;
    const auto run = run_on(config, 8, "H200");
    EXPECT_EQ(run.demand.communicators, row.communicators * kCommunicatorBytes) << row.words;
    EXPECT_THAT(to_table(run), HasSubstr(std::string(": ") + row.words + "\n"));
    EXPECT_THAT(to_json(run), HasSubstr("\"replicas\": " + std::to_string(row.replicate) +
                                        ",\n  \"shards\": " + std::to_string(row.shard) +
                                        ",\n  \"context_parallel\": 1,\n  \"tensor_parallel\": " +
                                        std::to_string(row.tensor) + ",\n  \"pipeline_parallel\": 1,"));
  }
}

TEST(DryRun, SuggestsNothingWhereItFits) {
  const auto run = run_on(with_batch(1), 64, "H200");
  EXPECT_TRUE(run.demand.fits());
  EXPECT_TRUE(run.suggestions.empty());
  EXPECT_THAT(to_table(run), HasSubstr("H200: fits ("));
  EXPECT_THAT(to_table(run), Not(HasSubstr("does not fit")));
}

// Each suggestion's total is the estimate of the changed configuration.
TEST(DryRun, SuggestsChangesThatItTried) {
  const auto config = with_batch(4);
  const auto run = run_on(config, 64, "A100");
  ASSERT_FALSE(run.demand.fits());
  ASSERT_FALSE(run.suggestions.empty());
  EXPECT_LE(run.suggestions.size(), 4);
  EXPECT_TRUE(run.suggestions.front().fits);
  for (std::size_t i = 0; i < run.suggestions.size(); ++i) {
    EXPECT_LT(run.suggestions[i].total, run.demand.total()) << run.suggestions[i].change;
    EXPECT_GE(run.suggestions[i > 0 ? i - 1 : 0].fits, run.suggestions[i].fits);
  }
  const auto of_batch_1 = std::ranges::find(run.suggestions, "training.local_batch_size = 1", &Suggestion::change);
  ASSERT_NE(of_batch_1, run.suggestions.end());
  EXPECT_EQ(of_batch_1->total, run_on(with_batch(1), 64, "A100").demand.total());
  auto with_own_kernels = config;  // never holds the full logits
  with_own_kernels.cuda.kernels = "own";
  EXPECT_EQ(run.suggestions.front().change, "cuda.kernels = \"own\"");
  EXPECT_EQ(run.suggestions.front().total, run_on(with_own_kernels, 64, "A100").demand.total());
  EXPECT_LT(run.suggestions.front().total, run.demand.total() - 30 * kGiB);
  EXPECT_THAT(to_table(run), HasSubstr("A100: does not fit ("));
  EXPECT_THAT(to_table(run), HasSubstr("\n  training.local_batch_size = 1: "));
}

// Runs of TorchTitan's docs/performance.md of 2024 on 64 A100 of 80 GB: some ran, some ran out of memory.
TEST(DryRun, AgreesWithWhatRanElsewhere) {
  struct Published {
    const char* name;
    const char* flavor;
    std::int64_t batch;
    const char* recompute;  // mode, or the option of "selective"
    bool fits;
  };
  constexpr Published kPublished[] = {
      {"llama3", "8B", 1, "2", true},     {"llama3", "8B", 1, "op", true},    {"llama3", "70B", 1, "full", true},
      {"llama2", "13B", 2, "none", true}, {"llama2", "13B", 2, "2", true},    {"llama2", "13B", 2, "op", true},
      {"llama2", "70B", 1, "op", true},   {"llama2", "70B", 2, "full", true}, {"llama2", "70B", 2, "op", false},
  };
  for (const auto& [name, flavor, batch, recompute, fits] : kPublished) {
    config::JobConfig config;
    config.model.name = name;
    config.model.flavor = flavor;
    config.training.seq_len = config.model.name == "llama3" ? 8192 : 4096;
    config.training.local_batch_size = batch;
    const std::string how = recompute;
    config.activation_checkpoint.mode = how == "none" || how == "full" ? how : "selective";
    if (config.activation_checkpoint.mode == "selective") config.activation_checkpoint.selective_ac_option = how;
    const auto run = run_on(config, 64, "A100");
    EXPECT_EQ(run.demand.fits(), fits) << name << " " << flavor << " " << recompute << ", batch " << batch << "\n"
                                       << to_table(run);
  }
}

// A batch that the ranks do not divide is not suggested.
TEST(DryRun, SuggestsOnlyWhatTheConfigurationAllows) {
  auto config = with_batch(6);
  config.training.global_batch_size = 6 * 64;
  const auto run = run_on(config, 64, "24GiB");
  for (const auto& suggestion : run.suggestions) {
    EXPECT_THAT(suggestion.change, Not(HasSubstr("128"))) << "6 sequences on 128 ranks are not 384";
  }
}

config::JobConfig with_pipeline(const std::string& schedule, std::int64_t microbatches) {
  auto config = with_batch(microbatches);
  config.parallelism.pipeline_parallel_degree = 4;
  config.parallelism.pipeline_parallel_schedule = schedule;
  config.activation_checkpoint.mode = "none";
  return config;
}

TEST(DryRun, SaysWhatEachRankOfAPipelineHas) {
  const auto run = run_on(with_pipeline("Interleaved1F1B", 8), 8, "H200");
  ASSERT_TRUE(run.pipeline);
  EXPECT_EQ(run.pipeline->stages_of_rank(0), (std::vector<std::string>{"tok_embeddings, layers.0-3", "layers.17-20"}));
  EXPECT_EQ(run.pipeline->stages_of_rank(3).back(), "layers.29-31, norm, output");
  EXPECT_EQ(run.pipeline->microbatches, 8);
  EXPECT_NEAR(run.pipeline->bubble, 3.0 / (2 * 8 + 3), 1e-9);  // docs/pipeline.md
  const auto& memory = run.demand.memory;
  ASSERT_EQ(memory.of_pipeline_ranks.size(), 4U);
  const auto largest = std::ranges::max_element(memory.of_pipeline_ranks);
  EXPECT_EQ(largest - memory.of_pipeline_ranks.begin(), memory.pipeline_rank);
  EXPECT_EQ(*largest, memory.peak() + memory.pooled);
  const std::string table = to_table(run);
  EXPECT_THAT(table, HasSubstr("rank 0: tok_embeddings, layers.0-3; layers.17-20"));
  EXPECT_THAT(table, HasSubstr("bytes of rank " + std::to_string(memory.pipeline_rank) + " of the pipeline, at"));
  EXPECT_THAT(to_json(run), HasSubstr("\"schedule\": \"Interleaved1F1B\""));
  EXPECT_THAT(to_json(run_on(with_batch(1), 8, "H200")), HasSubstr("\"pipeline\": null"));
}

// Each stage but the first receives hidden states for each microbatch, and gradients from the stage after it.
TEST(DryRun, CountsMessagesBetweenStages) {
  const auto run = run_on(with_pipeline("GPipe", 8), 8, "H200");
  std::int64_t sends = 0, bytes = 0;
  for (const auto& each : run.demand.memory.communication.messages)
    if (each.kind == "send" && each.group == "pp") sends += each.count, bytes += each.bytes;
  const bool is_at_an_end = run.demand.memory.pipeline_rank % 3 == 0;
  EXPECT_EQ(sends, is_at_an_end ? 8 : 16);
  EXPECT_EQ(bytes, sends * 2 * 8192 * 4096);  // bfloat16
}

TEST(DryRun, SuggestsWhatAPipelineAllows) {
  const auto suggested = [](const std::string& schedule, std::int64_t sequences, std::int64_t microbatch_size) {
    auto config = config_of_1b(/*layers=*/6);
    config.training.local_batch_size = sequences;
    config.parallelism.pipeline_parallel_degree = 4;
    config.parallelism.pipeline_parallel_schedule = schedule;
    config.parallelism.pipeline_parallel_microbatch_size = microbatch_size;
    std::string all;
    for (const auto& each : run_on(config, 4, "1GiB").suggestions) all += each.change + "\n";
    return all;
  };
  EXPECT_THAT(suggested("GPipe", 8, 1), HasSubstr("pipeline_parallel_schedule = \"1F1B\""));
  const auto of_1f1b = suggested("1F1B", 4, 1);
  EXPECT_THAT(of_1f1b, Not(HasSubstr("local_batch_size = 1"))) << "4 ranks need 4 microbatches";
  EXPECT_THAT(of_1f1b, Not(HasSubstr("schedule")));
  EXPECT_THAT(suggested("1F1B", 8, 2), HasSubstr("pipeline_parallel_microbatch_size = 1"));
}

TEST(DryRun, OfAMachineATenthIsNotForTensors) {
  Device host{"this machine", 100 * kGiB, /*has_bfloat16=*/true, /*is_gpu=*/false};
  const auto config = with_batch(1);
  const auto run = dry_run(config, spec_of(config), 64, host);
  EXPECT_EQ(run.demand.allowed, 90 * kGiB);
  EXPECT_EQ(run.demand.total(), run.demand.memory.peak());
  host.bytes = run.demand.total();
  EXPECT_THAT(to_table(dry_run(config, spec_of(config), 64, host)), HasSubstr("is 100 % of "));
  EXPECT_THAT(to_table(dry_run(config, spec_of(config), 64, host)), HasSubstr("; it may be 90 %, "));
}

}  // namespace
}  // namespace titan::train
