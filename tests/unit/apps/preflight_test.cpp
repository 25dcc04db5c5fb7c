// Tests the check of memory before a start: its cheap bounds, which skip the full estimate, must never contradict it.
#include "apps/train/preflight.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "apps/train/copies_check.h"
#include "tests/unit/train/support.h"
#include "train/dry_run/dry_run.h"

namespace titan {
namespace {

using train::EstimatedDevice;

bool fits(const config::JobConfig& config, std::int64_t ranks, std::int64_t bytes,
          EstimatedDevice device = EstimatedDevice::kGpu) {
  const Capacity capacity{.bytes_of_a_rank = bytes, .words = "a device", .device = device};
  return !find_lack_of_memory(config, train::spec_of(config), ranks, capacity);
}

// A configuration, and how it differs from the others.
struct Case {
  std::string name;
  std::function<void(config::JobConfig&)> change;
};

const std::vector<Case> kCases = {
    {"8 shards", [](auto&) {}},
    {"two replicas", [](auto& c) { c.parallelism.data_parallel_replicate_degree = 2; }},
    {"8 replicas", [](auto& c) { c.parallelism.data_parallel_replicate_degree = 8; }},
    {"tensor parallelism",
     [](auto& c) {
       c.parallelism.tensor_parallel_degree = 8;
       c.parallelism.data_parallel_shard_degree = 1;
     }},
    {"all three",
     [](auto& c) {
       c.parallelism.data_parallel_replicate_degree = 2;
       c.parallelism.tensor_parallel_degree = 2;
     }},
    {"16-bit parameters", [](auto& c) { c.training.dtype = "bfloat16"; }},
    {"tied", [](auto& c) { c.model.args.enable_weight_tying = true; }},
    {"offload", [](auto& c) { c.training.enable_cpu_offload = true; }},
    {"long sequences",  // most memory is for activations
     [](auto& c) {
       c.training.seq_len = 16384;
       c.model.args.dim = 512;
       c.parallelism.tensor_parallel_degree = 8;
       c.parallelism.data_parallel_shard_degree = 1;
       c.activation_checkpoint.mode = "full";
     }},
    {"without recomputation", [](auto& c) { c.activation_checkpoint.mode = "none"; }},
    {"a pipeline of many microbatches",
     [](auto& c) {
       c.parallelism.pipeline_parallel_degree = 2;
       c.training.local_batch_size = 64;
       c.model.args.dim = 512;
       c.model.args.n_layers = 16;
       c.model.args.vocab_size = 256;
       c.activation_checkpoint.mode = "full";
     }},
    {"a pipeline whose last stage is the largest",
     [](auto& c) {
       c.parallelism.pipeline_parallel_degree = 4;
       c.parallelism.pipeline_parallel_last_stage_less_layers = 0;
       c.training.local_batch_size = 4;
       c.model.args.dim = 512;
     }},
    {"one token", [](auto& c) { c.training.local_batch_size = c.training.seq_len = 1; }},
};

TEST(Preflight, TheEstimateLiesBetweenTheBounds) {
  for (const EstimatedDevice device : {EstimatedDevice::kCpu, EstimatedDevice::kGpu})
    for (const auto& [name, change] : kCases) {
      auto config = train::config_of_1b(/*layers=*/4);
      config.training.local_batch_size = 1;
      change(config);
      const auto peak = static_cast<double>(train::estimate(config, 8, device).peak());
      const auto [lower, upper] = memory_bounds(config, train::spec_of(config).stats, 8, device);
      EXPECT_LE(lower, peak) << name;
      EXPECT_GE(upper, peak) << name;
      EXPECT_GT(lower, 0) << name;
    }
}

TEST(Preflight, RefusesOnlyWhatTheEstimateRefuses) {
  for (const auto& [name, change] : kCases) {
    auto config = train::config_of_1b(/*layers=*/4);
    change(config);
    const std::int64_t peak = train::estimate(config, 8).peak();
    EXPECT_TRUE(fits(config, 8, peak)) << name;
    EXPECT_FALSE(fits(config, 8, peak - 1)) << name;
  }
}

TEST(Preflight, NamesTheRankOfAPipelineThatTakesTheMost) {
  auto config = train::config_of_1b(/*layers=*/4);
  config.model.args.vocab_size = 256;
  config.parallelism.pipeline_parallel_degree = 2;
  const auto memory = train::estimate(config, 2);
  const Capacity capacity{.bytes_of_a_rank = memory.peak() - 1, .words = "a device", .device = EstimatedDevice::kGpu};
  const auto fault = find_lack_of_memory(config, train::spec_of(config), 2, capacity);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->message.find(" on rank 0 of the pipeline, and a device"), std::string::npos) << fault->message;
}

TEST(Preflight, TwoCopiesInMemoryNeedRoom) {
  auto config = train::config_of_1b(/*layers=*/4);
  const TrainSpec spec = train::spec_of(config);
  EXPECT_FALSE(find_lack_for_copies(config, spec, 1)) << "no copies are asked for";
  config.checkpoint.enable = true;
  config.checkpoint.memory_interval = 10;
  config.checkpoint.memory_folder = "/proc";  // says nothing of its room
  const auto bytes = static_cast<std::int64_t>(train::checkpoint_size(config, spec.stats).full);
  EXPECT_FALSE(find_lack_for_copies(config, spec, 2 * bytes));
  const auto lack = find_lack_for_copies(config, spec, 2 * bytes - 1);
  ASSERT_TRUE(lack);
  EXPECT_NE(lack->message.find("two copies, the newest and the next, take"), std::string::npos) << lack->message;
  config.checkpoint.load_only = true;
  EXPECT_FALSE(find_lack_for_copies(config, spec, 1));
}

// Eight ranks that share each layer hold an eighth of the parameters each, as eight shards do; with offload, a GPU
// holds few of them.
TEST(Preflight, LetsLargeModelsStartThatFit) {
  constexpr std::int64_t k80GB = 80'000'000'000;
  auto split = train::config_of_8b();
  split.parallelism.data_parallel_shard_degree = 1;
  split.parallelism.tensor_parallel_degree = 8;
  EXPECT_TRUE(fits(split, 8, k80GB));
  auto replicas = train::config_of_8b();
  replicas.parallelism.data_parallel_replicate_degree = 8;
  EXPECT_FALSE(fits(replicas, 8, k80GB));
  auto offloaded = train::config_of_8b();
  offloaded.training.seq_len = 2048;
  EXPECT_FALSE(fits(offloaded, 1, k80GB));
  offloaded.training.enable_cpu_offload = true;
  EXPECT_TRUE(fits(offloaded, 1, k80GB));
}

}  // namespace
}  // namespace titan
