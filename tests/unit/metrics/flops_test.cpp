#include "metrics/flops.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "kernels/memory/host_arena.h"
#include "metrics/cpu_peak.h"

namespace titan::metrics {
namespace {

// Parameter counts and results that TorchTitan 0.2.2 computes for its llama3 flavors at a sequence of 2048.
TEST(Flops, PerTokenOfTheLlama3Flavors) {
  const auto flops = [](std::int64_t parameters, std::int64_t embedding, std::int64_t layers, std::int64_t heads,
                        std::int64_t head_dim) {
    return flops_per_token({.num_parameters = parameters,
                            .num_embedding_parameters = embedding,
                            .num_layers = layers,
                            .num_heads = heads,
                            .head_dim = head_dim},
                           2048);
  };
  EXPECT_EQ(flops(6'163'712, 2048 * 256, 6, 16, 16), 71'585'280);
  // A tied output projection is stored once, and multiplies like another.
  EXPECT_EQ(flops_per_token({.num_parameters = 6'163'712 - 2048 * 256,
                             .num_embedding_parameters = 2048 * 256,
                             .num_tied_parameters = 2048 * 256,
                             .num_layers = 6,
                             .num_heads = 16,
                             .head_dim = 16},
                            2048),
            71'585'280);
  EXPECT_EQ(flops(8'030'261'248, 128256LL * 4096, 32, 32, 128), 48'250'773'504);
  EXPECT_EQ(flops(70'553'706'496, 128256LL * 8192, 80, 64, 128), 433'124'327'424);
  EXPECT_EQ(flops(405'853'388'800, 128256LL * 16384, 126, 128, 128), 2'473'246'556'160);
}

// A clock that is read before and after each matmul: the matmuls take these times, in ms, the last one repeated.
Clock taking(std::vector<int> products_ms) {
  return [products_ms = std::move(products_ms), now = TimePoint(), reads = std::size_t{0}]() mutable {
    const auto last = products_ms.size() - 1;
    if (reads % 2 == 1) now += std::chrono::milliseconds(products_ms[std::min(reads / 2, last)]);
    ++reads;
    return now;
  };
}

constexpr double flops_of(double size) { return 2 * size * size * size; }

// Measures 1024 x 1024 if one of three matmuls of 256 x 256 is quick; otherwise these give the result.
TEST(Flops, ARankThatStoodStillForAMomentIsNotSlow) {
  EXPECT_DOUBLE_EQ(measure_cpu_peak_flops(c10::kFloat, taking({2, 20})), flops_of(1024) / 0.02);
  EXPECT_DOUBLE_EQ(measure_cpu_peak_flops(c10::kFloat, taking({1000, 1000, 2, 20})), flops_of(1024) / 0.02);
  EXPECT_DOUBLE_EQ(measure_cpu_peak_flops(c10::kFloat, taking({1000, 1000, 1000, 20})), flops_of(256) / 0.02);
  // One slow matmul does not decide the result: there are at least two.
  EXPECT_DOUBLE_EQ(measure_cpu_peak_flops(c10::kDouble, taking({2, 1000, 20})), flops_of(1024) / 0.02);
}

// The peak of the arena shows what a run needs; measuring must not change it.
TEST(Flops, MeasuringTheCpuLeavesTheArenaAlone) {
  ASSERT_TRUE(kernels::install_host_arena());
  const auto before = kernels::host_arena_stats().peak_in_use;
  for (const auto dtype : {c10::kFloat, c10::kBFloat16}) measure_cpu_peak_flops(dtype);
  EXPECT_EQ(kernels::host_arena_stats().peak_in_use, before);
}

// A run that measures and one that does not draw the same random numbers afterwards.
TEST(Flops, MeasuringTheCpuLeavesTheRandomNumbersAlone) {
  at::manual_seed(5);
  const auto before = at::detail::getDefaultCPUGenerator().get_state();
  for (const auto dtype : {c10::kFloat, c10::kBFloat16}) {
    EXPECT_GT(measure_cpu_peak_flops(dtype), 0) << c10::toString(dtype);
  }
  EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(before));
}

}  // namespace
}  // namespace titan::metrics
