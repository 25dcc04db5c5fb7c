// Tests all-gathers whose output exists once for all ranks of a host.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "distributed/shared_memory/shared_channel.h"
#include "tests/support/message_of.h"
#include "tests/support/shared_channels.h"

namespace titan {
namespace {

using dist::SharedChannel;
using test::channels;
using test::kRanks;
using test::kTimeout;
using test::message_of;
using test::on_rank_threads;
using testing::HasSubstr;

using Gather = std::shared_ptr<dist::SharedGather>;

// Starts a gather on each channel, with two elements per rank.
std::vector<Gather> gathers(const std::vector<std::shared_ptr<SharedChannel>>& all) {
  std::vector<Gather> started;
  for (const auto& channel : all)
    started.push_back(channel->gather(at::kLong, 2 * static_cast<std::int64_t>(all.size())));
  return started;
}

// Writes the part of rank `rank`.
void write(const Gather& gather, int rank, std::int64_t value) {
  gather->output().narrow(0, 2 * rank, 2).fill_(value);
  gather->set_written();
}

TEST(SharedGather, ExistsOnceForAllRanks) {
  const auto all = channels(3);
  for (int round = 0; round < 100; ++round) {
    auto started = gathers(all);
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(started[r]->is_free());
      write(started[r], r, 10 * round + r);
    }
    for (const auto& gather : started) {
      gather->wait_until_whole(kTimeout);
      EXPECT_TRUE(gather->output().equal(at::tensor({0, 0, 1, 1, 2, 2}, at::kLong) + 10 * round));
    }
  }
  EXPECT_LE(all[0]->bytes_of_blocks(), 2 * dist::BlockAllocator::kPage);
  EXPECT_EQ(all[0]->stats().in_use, 0);
}

TEST(SharedGather, IsNotWrittenOverWhatARankStillReads) {
  const auto all = channels(2);
  auto first = gathers(all);
  for (int r = 0; r < 2; ++r) write(first[r], r, r);
  auto read = first[1]->output();  // rank 1 keeps it, rank 0 does not
  first.clear();
  (void)all[0]->gather(at::kLong, 4);  // a block is not reused for one turn
  (void)all[1]->gather(at::kLong, 4);
  const auto again = all[0]->gather(at::kLong, 4);
  EXPECT_FALSE(again->is_free());
  EXPECT_THAT(message_of<PeerError>([&] { again->wait_until_free(std::chrono::milliseconds(20)); }),
              HasSubstr("rank 1, whose part in all_gather in place of 4 elements of Long rank 0 waited for, did not"));
  EXPECT_TRUE(read.equal(at::tensor({0, 0, 1, 1}, at::kLong)));
  std::thread late([&] { read.reset(); });
  again->wait_until_free(kTimeout);
  late.join();
  EXPECT_TRUE(again->is_free());
}

TEST(SharedGather, IsWholeWhenAllHaveWritten) {
  const auto all = channels(2);
  auto started = gathers(all);
  write(started[0], 0, 7);
  EXPECT_THAT(message_of<PeerError>([&] { started[0]->wait_until_whole(std::chrono::milliseconds(20)); }),
              HasSubstr("rank 1, whose part in all_gather in place of 4 elements"));
  write(started[1], 1, 8);
  started[0]->wait_until_whole(kTimeout);
  EXPECT_TRUE(started[0]->output().equal(at::tensor({7, 7, 8, 8}, at::kLong)));
}

TEST(SharedGather, SaysThatRanksDisagree) {
  const auto all = channels(2);
  const auto one = all[0]->gather(at::kLong, 4), other = all[1]->gather(at::kLong, 6);
  write(one, 0, 1);
  EXPECT_THAT(message_of<DistError>([&] { one->wait_until_whole(kTimeout); }),
              HasSubstr("rank 1 has all_gather in place of 6 elements of Long"));
  // Rank 0 releases only the first gather, rank 1 only the second.
  const auto fresh = channels(2);
  auto first = gathers(fresh), second = gathers(fresh), third = gathers(fresh);
  first[0].reset();
  second[1].reset();
  (void)fresh[0]->gather(at::kLong, 4);
  (void)fresh[1]->gather(at::kLong, 4);
  auto last = gathers(fresh);
  EXPECT_THAT(message_of<DistError>([&] { last[0]->wait_until_whole(kTimeout); }),
              HasSubstr("ranks disagree where the output of all_gather in place of 4 elements of Long lies"));
}

TEST(SharedGather, SaysThatItsMemoryIsSpent) {
  std::vector<std::shared_ptr<SharedChannel>> alone = {std::make_shared<SharedChannel>(0, 7, std::size_t{1} << 20)};
  alone[0]->connect({alone[0]->address()});
  const auto most = alone[0]->gather(at::kByte, 1 << 19);
  EXPECT_FALSE(alone[0]->can_allocate(at::kByte, 1));
  EXPECT_THAT(message_of<DistError>([&] { (void)alone[0]->gather(at::kByte, 1); }),
              HasSubstr("rank 7 has no 1 bytes left for a collective"));
}

// One gather of a rank, with `kRanks` parts of equal length.
struct InPlace {
  Gather gather;
  at::Tensor output;
  std::int64_t number, part;
  bool is_written;

  // Writes element by element, as check() reads, for ThreadSanitizer to see.
  void write(int rank) {
    auto* data = output.mutable_data_ptr<std::int64_t>() + rank * part;
    for (std::int64_t i = 0; i < part; ++i) data[i] = number * kRanks + rank;
    gather->set_written();
    is_written = true;
  }
  void check() const {
    const auto* data = output.const_data_ptr<std::int64_t>();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < kRanks * part; ++i) wrong += data[i] != number * kRanks + i / part;
    if (wrong) ADD_FAILURE() << wrong << " elements of gather " << number;
  }
};

// Gathers as fully_shard does: the next gathers start while one is in use, in the same order on all ranks, and each
// rank has its own pace.
TEST(SharedGather, OrdersReadsAndWritesOfRanksAtRandomPaces) {
  on_rank_threads([](SharedChannel& channel, int rank) {
    std::mt19937 plan(1), pace(static_cast<unsigned>(rank));
    std::deque<InPlace> started;
    for (std::int64_t number = 0; number < 4000; ++number) {
      const auto part = 1 + static_cast<std::int64_t>(plan() % 1000);
      auto gather = channel.gather(at::kLong, kRanks * part);
      auto output = gather->output();
      started.push_back({std::move(gather), std::move(output), number, part, false});
      if (started.back().gather->is_free()) started.back().write(rank);
      const auto most = plan() % 4;
      while (started.size() > most) {
        auto next = std::move(started.front());
        started.pop_front();
        if (!next.is_written) {
          next.gather->wait_until_free(kTimeout);
          next.write(rank);
        }
        next.gather->wait_until_whole(kTimeout);
        next.check();
        for (auto i = pace() % 4; i > 0; --i) std::this_thread::yield();
        next.check();  // nobody wrote it meanwhile
      }
    }
  });
}

}  // namespace
}  // namespace titan
