// Tests the channel between ranks of one host: its use of memory, what it refuses, and that nothing in it is read while
// it is written.
#include "distributed/shared_memory/shared_channel.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/shared_channels.h"

namespace titan {
namespace {

using dist::SharedChannel;
using dist::SharedKind;
using dist::SharedOperation;
using dist::SharedSignature;
using test::channels;
using test::kRanks;
using test::kTimeout;
using test::message_of;
using test::on_rank_threads;
using testing::HasSubstr;

constexpr SharedSignature kGather{SharedKind::kAllGather, at::kFloat, 1000};

TEST(SharedChannel, UsesTheSameMemoryAgain) {
  const auto all = channels(2);
  const auto step = [&] {
    for (int op = 0; op < 3; ++op) {
      const auto first = all[0]->publish(kGather, at::full({1000}, op, at::kFloat));
      const auto second = all[1]->publish(kGather, at::full({1000}, 10 + op, at::kFloat));
      EXPECT_EQ(first->inputs(kTimeout)[1][7].item<float>(), 10 + op);
      EXPECT_EQ(second->inputs(kTimeout)[0][7].item<float>(), op);
    }
  };
  step();
  const auto touched = all[0]->stats().touched;
  EXPECT_GE(touched, 4000);
  EXPECT_LE(touched, 4096);
  for (int i = 0; i < 2000; ++i) step();
  EXPECT_EQ(all[0]->stats().touched, touched);
}

TEST(SharedChannel, KeepsWhatAPeerStillNeeds) {
  const auto all = channels(2);
  std::vector<std::shared_ptr<SharedOperation>> late;
  for (int op = 0; op < 10; ++op) {
    all[0]->publish(kGather, at::full({1000}, op, at::kFloat));
    late.push_back(all[1]->publish(kGather, at::zeros({1000})));
  }
  EXPECT_GE(all[0]->stats().in_use, 10 * 4000);
  auto parts = late[9]->inputs(kTimeout);
  late[9].reset();
  for (int op = 8; op >= 0; --op) {
    EXPECT_EQ(late[op]->inputs(kTimeout)[0][999].item<float>(), op);
    late[op].reset();
  }
  (void)all[0]->buffer(1, at::kFloat);  // frees what it can
  EXPECT_EQ(all[0]->stats().in_use, 4032);
  EXPECT_EQ(parts[0][999].item<float>(), 9);
  parts.clear();
  (void)all[0]->buffer(1, at::kFloat);
  EXPECT_EQ(all[0]->stats().in_use, 0);
}

TEST(SharedChannel, ShowsABufferAsItIsAndKeepsItUntilAllAreDone) {
  const auto all = channels(2);
  auto buffer = all[0]->buffer(1000, at::kFloat);
  buffer.fill_(3);
  const void* data = buffer.const_data_ptr();
  all[0]->publish(kGather, buffer);
  auto late = all[1]->publish(kGather, at::zeros({1000}));
  EXPECT_EQ(all[0]->stats().in_use, 4032);  // no copy
  buffer.reset();
  EXPECT_NE(all[0]->buffer(1000, at::kFloat).const_data_ptr(), data);  // rank 1 has not read it
  EXPECT_TRUE(late->inputs(kTimeout)[0].equal(at::full({1000}, 3, at::kFloat)));
  late.reset();
  EXPECT_EQ(all[0]->buffer(1000, at::kFloat).const_data_ptr(), data);
  EXPECT_EQ(all[0]->buffer(0, at::kFloat).numel(), 0);
}

TEST(SharedChannel, CopiesABufferThatIsReducedInPlace) {
  const auto all = channels(2);
  const SharedSignature sum{SharedKind::kSum, at::kFloat, 4};
  auto buffer = all[0]->buffer(4, at::kFloat).fill_(1);
  const auto first = all[0]->publish(sum, buffer);
  const auto second = all[1]->publish(sum, at::ones({4}));
  buffer.fill_(2);
  EXPECT_TRUE(second->inputs(kTimeout)[0].equal(at::ones({4})));
}

TEST(SharedChannel, SaysThatTooMuchIsInFlight) {
  const auto all = channels(2);
  const auto nothing = at::empty({0});
  const SharedSignature signature{SharedKind::kSum, at::kFloat, 0};
  for (std::uint64_t i = 0; i < SharedChannel::kMaxInFlight; ++i) all[0]->publish(signature, nothing);
  EXPECT_THROW(all[0]->publish(signature, nothing), InternalError);
}

TEST(SharedChannel, SaysThatItsMemoryIsSpent) {
  const auto channel = std::make_shared<SharedChannel>(0, 7, std::size_t{1} << 20);
  const auto most = channel->buffer(1 << 18, at::kByte);
  const auto message = message_of<DistError>([&] { (void)channel->buffer(1 << 18, at::kByte); });
  EXPECT_THAT(message, HasSubstr("rank 7 has no 262144 bytes left for a collective in the 1048576"));
}

TEST(SharedChannel, NamesBothOperationsOfRanksThatDisagree) {
  const auto all = channels(2);
  const SharedSignature sum{SharedKind::kSum, at::kBFloat16, 999};
  const auto first = all[0]->publish(kGather, at::zeros({1000}));
  const auto second = all[1]->publish(sum, at::zeros({999}, at::kBFloat16));
  const auto message = message_of<DistError>([&] { first->inputs(kTimeout); });
  EXPECT_THAT(message, HasSubstr("rank 0 has all_gather of 1000 elements of Float"));
  EXPECT_THAT(message, HasSubstr("rank 1 has all_reduce (sum) of 999 elements of BFloat16"));
  EXPECT_THAT(message_of<DistError>([&] { second->inputs(kTimeout); }), HasSubstr("rank 0 has all_gather"));
}

TEST(SharedChannel, EndsAWaitWhenTheTimeIsOver) {
  const auto all = channels(2);
  const auto alone = all[0]->publish(kGather, at::zeros({1000}));
  const auto start = std::chrono::steady_clock::now();
  const auto message = message_of<PeerError>([&] { alone->inputs(std::chrono::milliseconds(200)); });
  EXPECT_THAT(message, HasSubstr("rank 1, whose part in all_gather of 1000 elements"));
  EXPECT_THAT(message, HasSubstr("200 ms"));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

TEST(SharedChannel, IsNotMadeWithAProcessThatIsNoRank) {
  auto one = std::make_shared<SharedChannel>(0, 0), other = std::make_shared<SharedChannel>(1, 1);
  auto wrong = other->address();
  wrong.descriptor = 9999;
  EXPECT_THAT(message_of<DistError>([&] { one->connect({one->address(), wrong}); }), HasSubstr("/fd/9999"));
  wrong = other->address();
  wrong.descriptor = open("/dev/null", O_RDONLY);  // the same numbers in another container, but an empty file
  EXPECT_THAT(message_of<DistError>([&] { one->connect({one->address(), wrong}); }), HasSubstr("another container"));
  close(wrong.descriptor);
  wrong = other->address();
  ++wrong.mark;  // the same, but such memory of another rank
  EXPECT_THAT(message_of<DistError>([&] { one->connect({one->address(), wrong}); }), HasSubstr("another container"));
}

// An operation that all ranks run, in the same order.
struct Step {
  SharedKind kind;
  std::int64_t numel;
  int root;  // for broadcasts

  bool shows(int rank) const {
    return kind != SharedKind::kBarrier && (kind != SharedKind::kBroadcast || rank == root);
  }
  // True if publish() shares a buffer in place. It copies other inputs with functions of the torch wheel, which is not
  // instrumented: ThreadSanitizer does not see those writes.
  bool is_not_copied() const { return kind == SharedKind::kAllGather || kind == SharedKind::kReduceScatter; }
};

std::vector<Step> random_steps(int count, int ranks) {
  constexpr SharedKind kKinds[] = {SharedKind::kAllGather, SharedKind::kAllGather, SharedKind::kReduceScatter,
                                   SharedKind::kSum,       SharedKind::kBroadcast, SharedKind::kBarrier};
  std::mt19937 random(1);
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    const auto kind = kKinds[random() % std::size(kKinds)];
    const auto numel = kind == SharedKind::kBarrier ? 0 : 1 + static_cast<std::int64_t>(random() % 1000);
    steps.push_back({kind, numel, static_cast<int>(random() % static_cast<unsigned>(ranks))});
  }
  return steps;
}

// A rank that runs the steps at its own pace: some operations are in flight, they are waited for in any order or
// dropped, and results are kept for a while. Its own generator decides all of it, so that only the speed of the threads
// differs between runs.
class RandomRank {
 public:
  RandomRank(SharedChannel& channel, int rank, const std::vector<Step>& steps)
      : channel_(channel), rank_(rank), steps_(steps), random_(static_cast<unsigned>(rank)) {}

  void run() {
    for (std::size_t number = 0; number < steps_.size(); ++number) {
      start(number);
      const auto most = random_() % 8;
      while (in_flight_.size() > most) finish_any();
      for (auto i = random_() % 4; i > 0; --i) std::this_thread::yield();
    }
    while (!in_flight_.empty()) finish_any();
    drop_kept();
  }

 private:
  // Number of operations after which a rank waits for all others; else it could get ahead by more than can be in
  // flight.
  static constexpr std::size_t kWaitsForAll = 8;

  struct Kept {
    at::Tensor input;
    std::size_t number;
    int owner;
  };

  static std::int64_t value(std::size_t number, int owner, std::int64_t i) {
    return (static_cast<std::int64_t>(number) * 16 + owner) * 1024 + i;
  }

  // Writes element by element, as check() reads, for ThreadSanitizer to see.
  void start(std::size_t number) {
    const auto& step = steps_[number];
    const auto numel = step.shows(rank_) ? step.numel : 0;
    const auto input = step.is_not_copied() ? channel_.buffer(numel, at::kLong) : at::empty({numel}, at::kLong);
    auto* data = input.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < numel; ++i) data[i] = value(number, rank_, i);
    in_flight_.emplace_back(number, channel_.publish({step.kind, at::kLong, step.numel}, input));
  }

  void check(const Kept& kept) const {
    const auto* data = kept.input.const_data_ptr<std::int64_t>();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < kept.input.numel(); ++i) wrong += data[i] != value(kept.number, kept.owner, i);
    if (wrong) {
      ADD_FAILURE() << wrong << " of " << kept.input.numel() << " elements that rank " << rank_ << " read of rank "
                    << kept.owner << "'s in operation " << kept.number;
    }
  }

  void finish_any() {
    const auto chosen = in_flight_.begin() + static_cast<std::ptrdiff_t>(random_() % in_flight_.size());
    const auto [number, operation] = *chosen;
    in_flight_.erase(chosen);
    if (number % kWaitsForAll == 0) return keep(number, operation->inputs(kTimeout));
    if (random_() % 3 == 0) return;
    const auto& step = steps_[number];
    if (step.kind != SharedKind::kBroadcast) return keep(number, operation->inputs(kTimeout));
    check({operation->input(step.root, kTimeout), number, step.root});
  }

  void keep(std::size_t number, const std::vector<at::Tensor>& inputs) {
    drop_kept();
    for (int r = 0; r < static_cast<int>(inputs.size()); ++r) {
      if (steps_[number].shows(r)) kept_.push_back({inputs[static_cast<std::size_t>(r)], number, r});
    }
    for (const auto& kept : kept_) check(kept);
  }

  void drop_kept() {
    for (const auto& kept : kept_) check(kept);  // nobody wrote it meanwhile
    kept_.clear();
  }

  SharedChannel& channel_;
  int rank_;
  const std::vector<Step>& steps_;
  std::mt19937 random_;
  std::vector<std::pair<std::size_t, std::shared_ptr<SharedOperation>>> in_flight_;
  std::vector<Kept> kept_;
};

TEST(SharedChannel, OrdersReadsAndWritesOfRanksAtRandomPaces) {
  const auto steps = random_steps(4 * static_cast<int>(SharedChannel::kMaxInFlight), kRanks);
  on_rank_threads([&](SharedChannel& channel, int rank) { RandomRank(channel, rank, steps).run(); });
}

}  // namespace
}  // namespace titan
