// Tests messages between two ranks of a host: their memory, their limits, and that nothing is read while it is written.
#include "distributed/shared_memory/shared_mail.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/shared_channels.h"

namespace titan {
namespace {

using dist::Mailbox;
using dist::SharedChannel;
using testing::HasSubstr;

at::Tensor numbers(double from) { return at::arange(from, from + 1000, at::kFloat); }

TEST(SharedMail, CopiesWhatIsNotInTheSegmentAndUsesTheMemoryAgain) {
  const auto all = test::channels(2);
  std::size_t touched = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto tensor = numbers(i);
    all[0]->mail().send(tensor, 1);
    const auto found = at::empty({1000});
    all[1]->mail().receive(found, 0)(test::kTimeout);
    ASSERT_TRUE(found.equal(tensor)) << i;
    if (i == 1) touched = all[0]->stats().touched;
  }
  EXPECT_EQ(all[0]->stats().touched, touched);
  (void)all[0]->buffer(1, at::kByte);  // frees what it can
  EXPECT_EQ(all[0]->stats().in_use, 0u);
}

TEST(SharedMail, LeavesInPlaceWhatIsInTheSegmentAndKeepsItsMemory) {
  const auto all = test::channels(2);
  auto tensor = all[0]->buffer(1000, at::kFloat);
  tensor.copy_(numbers(0));
  const auto in_use = all[0]->stats().in_use;
  all[0]->mail().send(tensor.narrow(0, 100, 800), 1);
  EXPECT_EQ(all[0]->stats().in_use, in_use) << "it was copied";
  tensor.reset();
  const auto other = all[0]->buffer(1000, at::kFloat).fill_(7);
  const auto found = at::empty({800});
  all[1]->mail().receive(found, 0)(test::kTimeout);
  EXPECT_TRUE(found.equal(numbers(0).narrow(0, 100, 800)));
  const auto again = all[0]->buffer(1000, at::kFloat);
  EXPECT_EQ(all[0]->stats().in_use, 2 * in_use) << "its memory was not given back";
}

TEST(SharedMail, MatchesInTheOrderOfTheStarts) {
  const auto all = test::channels(3);
  std::vector<dist::SharedMail::Wait> receives;
  std::vector<at::Tensor> found;
  for (int i = 0; i < 10; ++i) {
    found.push_back(at::empty({1000}));
    receives.push_back(all[2]->mail().receive(found.back(), i % 2));  // from ranks 0 and 1 in turn
  }
  for (const int from : {1, 0})
    for (int i = 0; i < 5; ++i) all[static_cast<std::size_t>(from)]->mail().send(numbers(100 * from + i), 2);
  for (int i = 9; i >= 0; --i) {
    receives[static_cast<std::size_t>(i)](test::kTimeout);
    EXPECT_TRUE(found[static_cast<std::size_t>(i)].equal(numbers(100 * (i % 2) + i / 2))) << i;
  }
}

TEST(SharedMail, HasALimitOfMessagesInFlight) {
  const auto all = test::channels(2);
  const auto one = at::ones({1});
  for (std::uint64_t i = 0; i < Mailbox::kMost; ++i) all[0]->mail().send(one, 1);
  EXPECT_THAT(test::message_of<InternalError>([&] { all[0]->mail().send(one, 1); }),
              HasSubstr("rank 0 sent rank 1 a message while it has not received 1024 earlier ones"));
  const auto found = at::empty({1});
  all[1]->mail().receive(found, 0)(test::kTimeout);
  all[0]->mail().send(one, 1);
}

// Also under ThreadSanitizer: every rank sends around the ring, in place and with copies.
TEST(SharedMail, IsReadOnlyWhenItIsWritten) {
  test::on_rank_threads([](SharedChannel& channel, int rank) {
    const int next = (rank + 1) % test::kRanks, previous = (rank + test::kRanks - 1) % test::kRanks;
    const auto found = at::empty({1000});
    for (int i = 0; i < 200; ++i) {
      channel.mail().send(channel.buffer(1000, at::kFloat).copy_(numbers(rank + i)), next);
      channel.mail().send(numbers(rank - i), next);
      channel.mail().receive(found, previous)(test::kTimeout);
      EXPECT_TRUE(found.equal(numbers(previous + i)));
      channel.mail().receive(found, previous)(test::kTimeout);
      EXPECT_TRUE(found.equal(numbers(previous - i)));
    }
  });
}

}  // namespace
}  // namespace titan
