#include "kernels/memory/host_arena.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace titan::kernels {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Held {
  unsigned char* address;
  std::size_t bytes;
  unsigned char mark;
};

bool is_intact(const Held& held) {
  for (std::size_t i = 0; i < held.bytes; i += 509) {
    if (held.address[i] != held.mark) return false;
  }
  return held.address[held.bytes - 1] == held.mark;
}

// Allocates and releases at random. Overlapping blocks would overwrite each other's marks.
void churn(HostArena& arena, unsigned seed, int rounds) {
  std::mt19937 random(seed);
  std::vector<Held> held;
  for (int i = 0; i < rounds; ++i) {
    if (held.size() < 12 && random() % 3 != 0) {
      const std::size_t bytes = 1 + random() % (300 * 1024);
      auto* address = static_cast<unsigned char*>(arena.allocate(bytes));
      ASSERT_NE(address, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(address) % 64, 0u);
      const auto mark = static_cast<unsigned char>(random());
      std::memset(address, mark, bytes);
      held.push_back({address, bytes, mark});
    } else if (!held.empty()) {
      const std::size_t which = random() % held.size();
      ASSERT_TRUE(is_intact(held[which]));
      arena.release(held[which].address);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const auto& h : held) {
    ASSERT_TRUE(is_intact(h));
    arena.release(h.address);
  }
}

TEST(HostArena, BlocksNeverOverlap) {
  HostArena arena(64 * kMiB);
  churn(arena, 1, 3000);
  EXPECT_EQ(arena.stats().in_use, 0u);
  // All blocks have been merged: the full range is one free block.
  void* all = arena.allocate(64 * kMiB);
  EXPECT_NE(all, nullptr);
  arena.release(all);
}

TEST(HostArena, ServesSeveralThreads) {
  HostArena arena(64 * kMiB);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) threads.emplace_back([&arena, i] { churn(arena, i, 1000); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(arena.stats().in_use, 0u);
}

// A step with the same allocations as the step before touches no new memory.
TEST(HostArena, SteadyLoopsTouchNothingNew) {
  HostArena arena(256 * kMiB);
  void* weights = arena.allocate(10 * kMiB);
  const auto step = [&] {
    std::vector<void*> activations;
    for (std::size_t i = 0; i < 8; ++i) {
      activations.push_back(arena.allocate(kMiB + i * 4096));
      arena.release(arena.allocate(3 * kMiB));
    }
    while (!activations.empty()) {
      arena.release(arena.allocate(2 * kMiB));
      arena.release(activations.back());
      activations.pop_back();
    }
  };
  step();
  const auto first = arena.stats();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(arena.stats().touched, first.touched);
  EXPECT_LE(first.touched, first.peak_in_use + 3 * kMiB);
  arena.release(weights);
}

TEST(HostArena, SaysWhenNothingFits) {
  HostArena arena(4 * kMiB);
  void* half = arena.allocate(2 * kMiB);
  EXPECT_EQ(arena.allocate(3 * kMiB), nullptr);
  EXPECT_NE(arena.allocate(2 * kMiB), nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.release(half);
  EXPECT_NE(arena.allocate(1), nullptr);
}

// This test comes last, because the arena stays installed.
TEST(HostArena, TensorsComeFromIt) {
  ASSERT_TRUE(install_host_arena());
  const auto before = host_arena_stats().in_use;
  {
    const auto large = at::ones({1024, 1024});
    EXPECT_EQ(host_arena_stats().in_use, before + 4 * kMiB);
    const auto small = at::ones({16});
    EXPECT_EQ(host_arena_stats().in_use, before + 4 * kMiB);
    EXPECT_EQ(at::mm(large, large)[0][0].item<float>(), 1024.0f);
    at::Tensor elsewhere;
    {
      const OutsideHostArena outside;
      elsewhere = at::ones({1024, 1024});
      std::thread([&] { EXPECT_EQ(at::ones({1024, 1024}).sum().item<float>(), 1024.0f * 1024.0f); }).join();
    }
    EXPECT_EQ(host_arena_stats().in_use, before + 4 * kMiB);
    EXPECT_EQ(host_arena_stats().peak_in_use, before + 8 * kMiB);  // with the other thread's tensor, or the matmul's
    const auto inside = elsewhere.clone();
    EXPECT_EQ(host_arena_stats().in_use, before + 8 * kMiB);
  }
  EXPECT_EQ(host_arena_stats().in_use, before);
}

}  // namespace
}  // namespace titan::kernels
