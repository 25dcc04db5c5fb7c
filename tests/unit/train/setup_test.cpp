#include "train/setup.h"

#include "tests/unit/train/support.h"

namespace titan::train {
namespace {

// Four ranks that read the same rows see each token four times, but it counts once.
TEST(Setup, MetricsCountEachTokenOnceWhereRanksShareABatch) {
  const auto config = config_of_8b();
  const auto of_one = [&](const dist::ParallelDims& dims) {
    return metrics_options(config, spec_of(config), dims, at::kCPU).non_data_parallel_size;
  };
  EXPECT_EQ(of_one({.dp_shard = 8, .world_size = 8}), 1);
  EXPECT_EQ(of_one({.dp_shard = 2, .tp = 4, .world_size = 8}), 4);
}

}  // namespace
}  // namespace titan::train
