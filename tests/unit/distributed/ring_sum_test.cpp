#include "distributed/shared_memory/ring_sum.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace titan::dist {
namespace {

std::vector<at::Tensor> drawn_parts(int ranks, std::int64_t numel) {
  std::vector<at::Tensor> parts;
  for (int r = 0; r < ranks; ++r) {
    const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(r) + 1);
    parts.push_back(at::randn({numel}, generator, at::kFloat).to(at::kBFloat16));
  }
  return parts;
}

// Rank 1's quarter of inputs of 4 * 300,007 elements: ten blocks, with a border of the ring's chunks inside.
TEST(RingSum, IsTheSameOnAnyNumberOfThreads) {
  constexpr std::int64_t kNumel = 300007;
  const auto parts = drawn_parts(4, kNumel);
  const auto sum_on = [&](int threads) {
    at::set_num_threads(threads);
    auto sum = at::full({kNumel}, -1.0F);
    add_as_ring(sum, parts, /*first=*/kNumel, /*input_numel=*/4 * kNumel);
    return sum;
  };
  const int threads = at::get_num_threads();
  const auto one = sum_on(1), three = sum_on(3);
  at::set_num_threads(threads);
  EXPECT_TRUE(three.equal(one));
  // Sums of four numbers below 6 in float32 differ by their order in the last bits alone.
  EXPECT_TRUE(one.allclose(at::stack(parts).to(at::kDouble).sum(0).to(at::kFloat), 1e-5, 1e-5));
}

}  // namespace
}  // namespace titan::dist
