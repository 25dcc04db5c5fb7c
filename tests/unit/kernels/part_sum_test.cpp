// Tests every instruction set of this machine against ATen's operators, to the bit.
#include "kernels/memory/part_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/memory/stream_copy.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

constexpr float kUntouched = -7;

std::vector<at::Tensor> drawn_parts(int count, std::int64_t numel, at::ScalarType dtype) {
  at::manual_seed(numel + count);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < count; ++i) parts.push_back(at::randn({numel}).to(dtype));
  return parts;
}

// The operators that the kernel replaces.
at::Tensor by_operators(const std::vector<at::Tensor>& parts, const std::vector<std::size_t>& order, double divisor) {
  at::Tensor sum = parts[order[0]].to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t i = 1; i < order.size(); ++i) sum.add_(parts[order[i]].to(at::kFloat));
  return sum.div_(divisor);
}

// Sizes within the cache and beyond it, with partial vectors at the end and unaligned addresses.
TEST(PartSum, IsATensSumToTheBit) {
  const std::vector<std::vector<std::size_t>> orders = {{0}, {1, 0}, {2, 0, 3, 1}};
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kPartSums))
    for (const std::int64_t numel : {std::int64_t{1}, std::int64_t{5}, std::int64_t{1003}, kSmallestStreamed / 4 + 77})
      for (const auto dtype : {at::kFloat, at::kBFloat16})
        for (const auto& order : orders)
          for (const double divisor : {1.0, 2.0, 3.0}) {
            const auto parts = drawn_parts(4, numel, dtype);
            const at::Tensor sum = at::full({numel}, kUntouched);
            const SumRange range{numel / 3, numel - numel / 5};
            ASSERT_TRUE(takes_part_sum(sum, parts));
            part_sum(*kernels, sum, parts, order, range, static_cast<float>(divisor));
            EXPECT_TRUE(sum.slice(0, range.begin, range.end)
                            .equal(by_operators(parts, order, divisor).slice(0, range.begin, range.end)))
                << kernels->name << ", " << numel << " of " << dtype << ", " << order.size() << " parts";
            EXPECT_TRUE((sum.slice(0, 0, range.begin) == kUntouched).all().item<bool>());
            EXPECT_TRUE((sum.slice(0, range.end) == kUntouched).all().item<bool>());
          }
}

TEST(PartSum, MayBeOneOfItsParts) {
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kPartSums)) {
    const auto parts = drawn_parts(3, kSmallestStreamed, at::kFloat);
    const at::Tensor expected = by_operators(parts, {2, 1, 0}, 3);
    part_sum(*kernels, parts[1], parts, {2, 1, 0}, {0, kSmallestStreamed}, 3);
    EXPECT_TRUE(parts[1].equal(expected)) << kernels->name;
  }
}

TEST(PartSum, WhatIsNoNumberStaysNone) {
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kPartSums)) {
    const auto parts = drawn_parts(2, 100, at::kBFloat16);
    parts[0][7].fill_(std::numeric_limits<float>::quiet_NaN());
    parts[1][8].fill_(std::numeric_limits<float>::infinity());
    const at::Tensor sum = at::empty({100});
    part_sum(*kernels, sum, parts, {0, 1}, {0, 100}, 2);
    EXPECT_TRUE(sum[7].isnan().item<bool>() && sum[8].isinf().item<bool>()) << kernels->name;
    EXPECT_EQ(sum.isfinite().sum().item<std::int64_t>(), 98);
  }
}

TEST(PartSum, TakesWhatItsKernelsCanDo) {
  const at::Tensor sum = at::empty({6}), part = at::empty({6}), low = part.to(at::kBFloat16);
  EXPECT_TRUE(takes_part_sum(sum, {part, part}));
  EXPECT_TRUE(takes_part_sum(sum, {low, low}));
  EXPECT_FALSE(takes_part_sum(sum, {part, low}));
  EXPECT_FALSE(takes_part_sum(low, {low, low}));
  EXPECT_FALSE(takes_part_sum(sum, {part, at::empty({5})}));
  EXPECT_FALSE(takes_part_sum(sum, {part, at::empty({12}).slice(0, 0, 12, 2)}));
  EXPECT_FALSE(takes_part_sum(sum, {part.to(at::kDouble), part.to(at::kDouble)}));
}

}  // namespace
}  // namespace titan::kernels
