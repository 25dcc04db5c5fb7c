// Tests the placement of gathered outputs: ranks agree by their calls alone, and blocks are reused at the right time.
#include "distributed/shared_memory/block_allocator.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "base/error.h"

namespace titan {
namespace {

using dist::BlockAllocator;

constexpr std::size_t kPage = BlockAllocator::kPage;

TEST(BlockAllocator, ReusesABlockOnceAnotherWasAllocated) {
  BlockAllocator allocator(100, 100 * kPage, 8);
  const auto first = allocator.allocate(3 * kPage - 5);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->offset, kPage);
  EXPECT_EQ(first->generation, 1);
  allocator.free(first->number);
  // The other ranks may still read the first.
  const auto second = allocator.allocate(3 * kPage);
  EXPECT_EQ(second->offset, 4 * kPage);
  allocator.free(second->number);
  const auto third = allocator.allocate(2 * kPage);
  EXPECT_EQ(third->number, first->number);
  EXPECT_EQ(third->generation, 2);
  EXPECT_EQ(allocator.bytes(), 6 * kPage);
}

TEST(BlockAllocator, AsksForNothingNewInASteadyLoop) {
  BlockAllocator allocator(0, 1000 * kPage, 100);
  // Gathers layers as training does: the next one before the previous one is freed.
  const auto step = [&] {
    int last = allocator.allocate(7 * kPage)->number;
    for (int layer = 0; layer < 10; ++layer) {
      const int next = allocator.allocate(20 * kPage)->number;
      allocator.free(last);
      last = next;
    }
    allocator.free(last);
  };
  step();
  step();
  const auto bytes = allocator.bytes();
  EXPECT_LE(bytes, (2 * 7 + 3 * 20) * kPage);
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(allocator.bytes(), bytes);
}

TEST(BlockAllocator, ReusesABlockAtOnceBeforeItFails) {
  BlockAllocator allocator(0, 10 * kPage, 8);
  const auto only = allocator.allocate(6 * kPage);
  for (const std::size_t bytes : {6 * kPage, 11 * kPage, static_cast<std::size_t>(-1)}) {
    EXPECT_FALSE(allocator.can_allocate(bytes));
    EXPECT_FALSE(allocator.allocate(bytes));
  }
  allocator.free(only->number);
  EXPECT_TRUE(allocator.can_allocate(6 * kPage));
  EXPECT_EQ(allocator.allocate(6 * kPage)->number, only->number);
  BlockAllocator two(0, 100 * kPage, 2);
  EXPECT_TRUE(two.allocate(1) && two.allocate(1));
  EXPECT_FALSE(two.allocate(1));
}

TEST(BlockAllocator, KeepsALargeBlockForLargeRequests) {
  BlockAllocator allocator(0, 1000 * kPage, 8);
  const int large = allocator.allocate(100 * kPage)->number;
  const int medium = allocator.allocate(40 * kPage)->number;
  allocator.free(large);
  allocator.free(medium);
  EXPECT_NE(allocator.allocate(1)->number, large);
  EXPECT_EQ(allocator.allocate(30 * kPage)->number, medium);  // the smallest that fits
  EXPECT_EQ(allocator.allocate(50 * kPage)->number, large);
}

TEST(BlockAllocator, ChoosesByTheCallsAloneAndNeverTwiceAtOnce) {
  BlockAllocator one(0, 1 << 20, 64), other(0, 1 << 20, 64);
  std::mt19937 random(1);
  std::map<std::size_t, std::pair<std::size_t, int>> allocated;  // offset -> end, number
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = random() % (1 << 16);
    if (random() % 2) {
      const bool has_room = one.can_allocate(bytes);
      const auto block = one.allocate(bytes), same = other.allocate(bytes);
      ASSERT_EQ(block.has_value(), has_room);
      ASSERT_EQ(block.has_value(), same.has_value());
      if (!block) continue;
      ASSERT_EQ(block->offset, same->offset);
      ASSERT_EQ(block->generation, same->generation);
      const auto next = allocated.lower_bound(block->offset);
      ASSERT_TRUE(next == allocated.end() || block->offset + bytes <= next->first);
      ASSERT_TRUE(next == allocated.begin() || std::prev(next)->second.first <= block->offset);
      allocated[block->offset] = {block->offset + bytes, block->number};
    } else if (!allocated.empty()) {
      const auto chosen = std::next(allocated.begin(), static_cast<std::ptrdiff_t>(random() % allocated.size()));
      one.free(chosen->second.second);
      other.free(chosen->second.second);
      allocated.erase(chosen);
    }
  }
}

TEST(BlockAllocator, FreesABlockOnce) {
  BlockAllocator allocator(0, 10 * kPage, 8);
  const int number = allocator.allocate(1)->number;
  allocator.free(number);
  EXPECT_THROW(allocator.free(number), InternalError);
}

}  // namespace
}  // namespace titan
