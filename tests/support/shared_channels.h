// Channels between ranks of one host that are threads, or all in one thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "distributed/shared_memory/shared_channel.h"

namespace titan::test {

inline constexpr auto kTimeout = std::chrono::seconds(30);

// Returns the connected channels of `size` ranks, all in this thread.
inline std::vector<std::shared_ptr<dist::SharedChannel>> channels(int size) {
  std::vector<std::shared_ptr<dist::SharedChannel>> all;
  std::vector<dist::SegmentAddress> addresses;
  for (int r = 0; r < size; ++r) {
    all.push_back(std::make_shared<dist::SharedChannel>(r, r));
    addresses.push_back(all.back()->address());
  }
  for (const auto& channel : all) channel->connect(addresses);
  return all;
}

inline constexpr int kRanks = 3;

// Runs `body` for each of kRanks ranks on a thread of its own. All ranks share one mapping of each segment. With
// separate mappings, as processes have, ThreadSanitizer would take a reader's addresses for other memory than the
// writer's, and see no race between them.
inline void on_rank_threads(const std::function<void(dist::SharedChannel& channel, int rank)>& body) {
  std::vector<std::shared_ptr<dist::SharedChannel>> all;
  std::vector<dist::SegmentAddress> addresses;
  std::vector<std::shared_ptr<const dist::SharedSegment>> segments;
  for (int r = 0; r < kRanks; ++r) {
    all.push_back(std::make_shared<dist::SharedChannel>(r, r, std::size_t{1} << 24));
    addresses.push_back(all.back()->address());
    segments.push_back(all.back()->segment());
  }
  for (const auto& channel : all) channel->connect(addresses, segments);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*all[static_cast<std::size_t>(r)], r);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& channel : all) {
    (void)channel->buffer(1, at::kByte);  // frees what it can
    EXPECT_EQ(channel->stats().in_use, 0);
  }
}

}  // namespace titan::test
