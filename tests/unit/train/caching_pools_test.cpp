#include "train/dry_run/caching_pools.h"

#include <gtest/gtest.h>

#include "tests/unit/train/support.h"

namespace titan::train {
namespace {

constexpr bool kSegments = false, kExpandable = true;

TEST(CachingPools, ASmallBlockTakesASegmentOf2MiB) {
  CachingPools pools(kSegments);
  pools.allocate(0, 1, 0);
  pools.allocate(1, kMiB, 0);
  EXPECT_EQ(pools.reserved(), 2 * kMiB);
}

TEST(CachingPools, ABlockBelow10MiBTakesASegmentOf20MiB) {
  CachingPools pools(kSegments);
  pools.allocate(0, 9 * kMiB, 0);
  pools.allocate(1, 9 * kMiB, 0);
  EXPECT_EQ(pools.reserved(), 20 * kMiB);
  pools.allocate(2, 9 * kMiB, 0);
  EXPECT_EQ(pools.reserved(), 40 * kMiB);
}

TEST(CachingPools, ALargeBlockTakesItsSizeRoundedTo2MiB) {
  CachingPools pools(kSegments);
  pools.allocate(0, 11 * kMiB, 0);
  EXPECT_EQ(pools.reserved(), 12 * kMiB);
}

TEST(CachingPools, WhatIsFreedServesAgain) {
  for (const bool expandable : {kSegments, kExpandable}) {
    CachingPools pools(expandable);
    pools.allocate(0, 100 * kMiB, 0);
    pools.free(0);
    pools.allocate(1, 60 * kMiB, 0);
    pools.allocate(2, 40 * kMiB, 0);
    EXPECT_EQ(pools.reserved(), 100 * kMiB);
  }
}

TEST(CachingPools, OneStreamDoesNotServeAnother) {
  for (const bool expandable : {kSegments, kExpandable}) {
    CachingPools pools(expandable);
    pools.allocate(0, 100 * kMiB, 0);
    pools.free(0);
    pools.allocate(1, 100 * kMiB, 1);
    EXPECT_EQ(pools.reserved(), 200 * kMiB);
  }
}

// Two adjacent free blocks of 40 merge into one of 80; as two segments they stay two.
TEST(CachingPools, NeighboursJoinWithinASegmentAlone) {
  for (const bool expandable : {kSegments, kExpandable}) {
    CachingPools pools(expandable);
    pools.allocate(0, 40 * kMiB, 0);
    pools.allocate(1, 40 * kMiB, 0);
    pools.free(0);
    pools.free(1);
    pools.allocate(2, 80 * kMiB, 0);
    EXPECT_EQ(pools.reserved(), expandable ? 80 * kMiB : 160 * kMiB);
    pools.free(2);
    pools.allocate(3, 50 * kMiB, 0);
    pools.allocate(4, 30 * kMiB, 0);
    EXPECT_EQ(pools.reserved(), expandable ? 80 * kMiB : 160 * kMiB);
  }
}

TEST(CachingPools, AFreeBlockAtTheEndOfARangeGrows) {
  CachingPools pools(kExpandable);
  pools.allocate(0, 40 * kMiB, 0);
  pools.allocate(1, 40 * kMiB, 0);
  pools.free(1);
  pools.allocate(2, 100 * kMiB, 0);
  EXPECT_EQ(pools.reserved(), 140 * kMiB);
}

// 25 fits into a hole of 30, not into one of 20; the hole of 40 stays free for a larger request.
TEST(CachingPools, TheSmallestBlockThatFitsIsTaken) {
  CachingPools pools(kSegments);
  for (const std::int64_t size : {40, 20, 30}) pools.allocate(static_cast<std::size_t>(size), size * kMiB, 0);
  for (const std::size_t id : {40, 20, 30}) pools.free(id);
  pools.allocate(1, 25 * kMiB, 0);
  pools.allocate(2, 40 * kMiB, 0);
  EXPECT_EQ(pools.reserved(), 90 * kMiB);
}

}  // namespace
}  // namespace titan::train
