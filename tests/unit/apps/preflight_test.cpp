// Tests the check of memory before a start: its cheap bounds, which skip the full estimate, must never contradict it.
#include "apps/train/preflight.h"

#include <gtest/gtest.h>

#include "tests/unit/train/support.h"

namespace titan {
namespace {

struct Degrees {
  std::int64_t replicate, shard, tensor;
};

config::JobConfig split_by(config::JobConfig config, const Degrees& degrees) {
  config.parallelism.data_parallel_replicate_degree = degrees.replicate;
  config.parallelism.data_parallel_shard_degree = degrees.shard;
  config.parallelism.tensor_parallel_degree = degrees.tensor;
  return config;
}

bool fits(const config::JobConfig& config, std::int64_t ranks, std::int64_t bytes) {
  const Capacity capacity{.bytes_of_a_rank = bytes, .words = "a GPU", .device = train::EstimatedDevice::kGpu};
  return !find_lack_of_memory(config, train::spec_of(config), ranks, capacity);
}

TEST(Preflight, RefusesOnlyWhatTheEstimateRefuses) {
  for (const Degrees& degrees :
       {Degrees{1, 8, 1}, Degrees{2, 4, 1}, Degrees{1, 1, 8}, Degrees{1, 2, 4}, Degrees{2, 2, 2}})
    for (const char* recompute : {"full", "none"}) {
      auto config = split_by(train::config_of_1b(/*layers=*/4), degrees);
      config.activation_checkpoint.mode = recompute;
      const std::int64_t peak = train::estimate(config, 8).peak();
      EXPECT_TRUE(fits(config, 8, peak)) << degrees.replicate << degrees.shard << degrees.tensor << recompute;
      EXPECT_FALSE(fits(config, 8, peak - 1)) << degrees.replicate << degrees.shard << degrees.tensor << recompute;
    }
}

// Eight ranks that share each layer hold an eighth of the parameters each, as eight shards do.
TEST(Preflight, TensorParallelismSharesTheParameters) {
  constexpr std::int64_t k80GB = 80'000'000'000;
  EXPECT_TRUE(fits(split_by(train::config_of_8b(), {1, 1, 8}), 8, k80GB));
  EXPECT_FALSE(fits(split_by(train::config_of_8b(), {8, 1, 1}), 8, k80GB));
}

}  // namespace
}  // namespace titan
