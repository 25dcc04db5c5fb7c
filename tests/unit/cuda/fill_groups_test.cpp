#include "kernels/cuda/fill_groups.h"

#include <gtest/gtest.h>

#include <vector>

namespace titan::cuda {
namespace {

constexpr std::uint64_t kSeed = 0x0123456789abcdefu, kStream = 0xfedcba9876543210u;
constexpr float kUntouched = -1;

static_assert(num_groups({kSeed, kStream, 3, 1}) == 1);
static_assert(num_groups({kSeed, kStream, 3, 2}) == 2);
static_assert(num_groups({kSeed, kStream, 7, 0}) == 0);

// Runs the kernel's work group by group, with margins around the output that reveal writes outside it.
std::vector<float> filled(std::uint64_t first, std::int64_t numel) {
  constexpr std::int64_t kRoom = 8;
  std::vector<float> memory(static_cast<std::size_t>(numel + 2 * kRoom), kUntouched);
  const Fill fill{kSeed, kStream, first, numel};
  for (std::int64_t group = num_groups(fill); group-- > 0;) fill_group(fill, group, memory.data() + kRoom);
  for (std::int64_t i = 0; i < kRoom; ++i) {
    EXPECT_EQ(memory[static_cast<std::size_t>(i)], kUntouched)
        << "before the range, first " << first << " numel " << numel;
    EXPECT_EQ(memory[static_cast<std::size_t>(kRoom + numel + i)], kUntouched)
        << "behind the range, first " << first << " numel " << numel;
  }
  return {memory.begin() + kRoom, memory.end() - kRoom};
}

void expect_reference(std::uint64_t first, std::int64_t numel) {
  const auto values = filled(first, numel);
  for (std::int64_t i = 0; i < numel; ++i) {
    const auto index = first + static_cast<std::uint64_t>(i);
    EXPECT_EQ(values[static_cast<std::size_t>(i)], kernels::counter_uniform(kSeed, kStream, index))
        << "first " << first << " numel " << numel << " i " << i;
  }
}

TEST(FillGroups, GiveTheReferenceAtEveryAlignmentAndLength) {
  for (std::uint64_t first = 0; first < 8; ++first) {
    for (std::int64_t numel = 0; numel <= 20; ++numel) expect_reference(first, numel);
  }
}

// Covers indices of elements and of groups beyond 32 bits.
TEST(FillGroups, GiveTheReferenceAtLargeIndices) {
  for (const auto base : {std::uint64_t{1} << 32, std::uint64_t{1} << 34, std::uint64_t{1} << 62}) {
    for (std::uint64_t before = 0; before < 8; ++before) expect_reference(base - before, 13);
  }
}

TEST(FillGroups, AreAsManyAsTheRangeTouches) {
  for (std::uint64_t first = 0; first < 8; ++first) {
    for (std::int64_t numel = 1; numel <= 20; ++numel) {
      std::int64_t touched = 1;
      for (std::int64_t i = 1; i < numel; ++i) touched += (first + static_cast<std::uint64_t>(i)) % 4 == 0;
      EXPECT_EQ(num_groups({kSeed, kStream, first, numel}), touched) << "first " << first << " numel " << numel;
    }
  }
}

}  // namespace
}  // namespace titan::cuda
