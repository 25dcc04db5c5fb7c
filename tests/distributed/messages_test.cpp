// Tests messages between two ranks: over shared memory, and over sockets alone.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "distributed/flight/dump.h"
#include "distributed/flight/flight_recorder.h"
#include "distributed/world.h"
#include "tests/support/guard.h"
#include "tests/support/run_ranks.h"
#include "trace/operation.h"
#include "trace/planned_collectives.h"

namespace titan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Messages : public testing::TestWithParam<std::string> {
 protected:
  Messages() {
    if (test::is_rank()) setenv("TITAN_SHARED_MEMORY", is_memory() ? "1" : "0", /*overwrite=*/1);
  }
  static bool is_memory() { return GetParam() == "Memory"; }
  static void expect_transport(dist::World& world) { EXPECT_EQ(world.group().shares_memory(at::kCPU), is_memory()); }
};

INSTANTIATE_TEST_SUITE_P(Over, Messages, testing::Values("Memory", "Sockets"),
                         [](const auto& transport) { return transport.param; });

// Returns different values for each message and rank; exact in every dtype.
at::Tensor values(const std::vector<std::int64_t>& shape, at::ScalarType dtype, int salt) {
  const auto numel = at::empty(shape, at::device(at::kMeta)).numel();
  return at::arange(numel, at::kLong).mul_(salt + 3).remainder_(101).view(shape).to(dtype);
}

TEST_P(Messages, CarryEveryDtypeShapeAndSize) {
  test::on_ranks(2, [](dist::World& world) {
    expect_transport(world);
    auto& group = world.group();
    const int peer = 1 - world.rank();
    const std::vector<std::vector<std::int64_t>> shapes = {{}, {1}, {0}, {3, 5, 7}, {4 << 20}};  // 16 MiB in float32
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kShort, at::kBool, at::kDouble}) {
      for (const auto& shape : shapes) {
        auto found = at::empty(shape, dtype);
        auto sent = group.send(values(shape, dtype, world.rank()), peer);
        group.receive(found, peer).wait();
        sent.wait();
        EXPECT_TRUE(found.equal(values(shape, dtype, peer))) << dtype << " " << found.sizes();
      }
    }
  });
}

// The sizes differ, so that a message in another one's place shows. The last receive is waited for first.
TEST_P(Messages, ArriveInTheOrderOfTheirStarts) {
  test::on_ranks(2, [](dist::World& world) {
    constexpr int kMessages = 40;
    auto& group = world.group();
    const int peer = 1 - world.rank();
    std::vector<dist::Work> sends, receives;
    std::vector<at::Tensor> found;
    for (int i = 0; i < kMessages; ++i) sends.push_back(group.send(values({1 + i % 7, 1000}, at::kLong, i), peer));
    for (int i = 0; i < kMessages; ++i) {
      found.push_back(at::empty({1 + i % 7, 1000}, at::kLong));
      receives.push_back(group.receive(found.back(), peer));
    }
    for (int i = kMessages - 1; i >= 0; --i) {
      receives[static_cast<std::size_t>(i)].wait();
      const auto& one = found[static_cast<std::size_t>(i)];
      EXPECT_TRUE(one.equal(values({1 + i % 7, 1000}, at::kLong, i))) << i;
    }
    dist::wait_for_all(sends);
    // Nothing is left over: the next message is the next one.
    auto last = at::empty({1}, at::kLong);
    auto sent = group.send(at::full({1}, 7 + world.rank(), at::kLong), peer);
    group.receive(last, peer).wait();
    sent.wait();
    EXPECT_EQ(last.item<std::int64_t>(), 7 + peer);
  });
}

// As in ring attention: every rank passes on what it has received, and all send first.
void pass_around(dist::World& world, bool in_one_exchange, bool in_buffers) {
  auto& group = world.group();
  const int size = group.size(), rank = group.rank(), next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto numel = std::int64_t{1} << 18;
  const auto make = [&] {
    return in_buffers ? group.exchange_buffer(numel, at::kFloat) : at::empty({numel}, at::kFloat);
  };
  auto here = make();
  here.copy_(values({numel}, at::kFloat, rank));
  for (int step = 1; step < size; ++step) {
    std::vector<dist::Work> works;
    auto coming = make();
    if (in_one_exchange) {
      works = group.exchange({{here, next}}, {{coming, previous}});
    } else {
      works.push_back(group.send(here, next));
      works.push_back(group.receive(coming, previous));
    }
    dist::wait_for_all(works);
    here = std::move(coming);
    EXPECT_TRUE(here.equal(values({numel}, at::kFloat, (rank + size - step) % size))) << "step " << step;
  }
}

TEST_P(Messages, GoAroundARingWhereAllSendFirst) {
  test::on_ranks(4, [](dist::World& world) {
    for (const bool in_one_exchange : {true, false})
      for (const bool in_buffers : {true, false}) pass_around(world, in_one_exchange, in_buffers);
  });
}

// Stage 0 starts all sends before stage 1 starts a receive, and waits for gradients that depend on them.
TEST_P(Messages, DoNotHoldAPipelineThatSendsAhead) {
  test::on_ranks(4, [](dist::World& world) {
    constexpr int kMicrobatches = 16;
    auto& group = world.group();
    const int stage = group.rank(), last = group.size() - 1;
    std::vector<dist::Work> sends;
    const auto send = [&](const at::Tensor& tensor, int to) { sends.push_back(group.send(tensor, to)); };
    const auto receive = [&](int from) {
      auto tensor = at::empty({2, 64, 32}, at::kBFloat16);
      group.receive(tensor, from).wait();
      return tensor;
    };
    for (int i = 0; i < kMicrobatches; ++i) {
      const auto activation = stage == 0 ? at::full({2, 64, 32}, i, at::kBFloat16) : receive(stage - 1);
      if (stage < last) send(activation + 1, stage + 1);
      if (stage == last) send(activation * 2, stage - 1);
    }
    for (int i = 0; i < kMicrobatches && stage < last; ++i) {
      const auto gradient = receive(stage + 1);
      EXPECT_TRUE(gradient.equal(at::full({2, 64, 32}, (i + last) * 2, at::kBFloat16))) << i;
      if (stage > 0) send(gradient, stage - 1);
    }
    dist::wait_for_all(sends);
  });
}

// Collectives of the same group go on in between.
TEST_P(Messages, LeaveCollectivesAlone) {
  test::on_ranks(4, [](dist::World& world) {
    auto& group = world.group();
    const int rank = group.rank();
    auto found = at::empty({8}, at::kLong);
    dist::Work message;
    if (rank == 3) message = group.receive(found, 1);
    auto sum = at::full({4}, rank);
    group.all_reduce(sum, dist::ReduceOp::kSum).wait();
    if (rank == 1) message = group.send(values({8}, at::kLong, 5), 3);
    group.barrier();
    message.wait();
    EXPECT_TRUE(sum.equal(at::full({4}, 6)));
    if (rank == 3) {
      EXPECT_TRUE(found.equal(values({8}, at::kLong, 5)));
    }
  });
}

// Rank 0 starts a message to or from rank 1, which is killed.
void expect_end_of_peer(const std::function<dist::Work(dist::ProcessGroup& group, at::Tensor tensor)>& start) {
  const auto ends = test::ends_of_ranks(2, [&](dist::World& world) {
    if (world.rank() == 1) ::raise(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    try {
      start(world.group(), world.group().exchange_buffer(4 << 20, at::kFloat)).wait();
      ADD_FAILURE() << "nobody was there";
    } catch (const PeerError& error) {
      EXPECT_LT(std::chrono::steady_clock::now() - begin, test::guard(15));  // the time limit is guard(30)
      EXPECT_THAT(error.what(), HasSubstr(" rank 1 over 'world' failed: a peer rank ended"));
      world.stop(error.what());
    }
  });
  if (test::is_rank()) return;
  EXPECT_EQ(ends[1].how, "SIGKILL");
  EXPECT_EQ(ends[0].how, "exit code 3") << ends[0].said;
  EXPECT_THAT(ends[0].said, HasSubstr("stops: rank 1: ended without reporting an error"));
  EXPECT_THAT(ends[0].said, Not(HasSubstr("Failure")));
}

// In shared memory, a send is over at once.
TEST(MessagesOverSockets, ToAPeerThatDiesFail) {
  if (test::is_rank()) setenv("TITAN_SHARED_MEMORY", "0", /*overwrite=*/1);
  expect_end_of_peer([](auto& group, const auto& tensor) { return group.send(tensor, 1); });
}

TEST_P(Messages, FromAPeerThatDiesFail) {
  expect_end_of_peer([](auto& group, const auto& tensor) { return group.receive(tensor, 1); });
}

// Rank 1 sends only after rank 0 has given up.
TEST_P(Messages, ThatDoNotComeInTimeAreAPeerError) {
  test::on_ranks(2, [](dist::World& world) {
    auto& group = world.group();
    const auto mark = std::filesystem::temp_directory_path() / "gave-up";
    if (world.rank() == 0) {
      const Operation operation({}, "layers.3");
      group.set_timeout(std::chrono::milliseconds(200));
      auto tensor = at::empty({8});
      auto work = group.receive(tensor, 1);
      try {
        work.wait();
        ADD_FAILURE() << "nobody sent it";
      } catch (const PeerError& error) {
        EXPECT_THAT(error.what(), HasSubstr("receive from rank 1 over 'world' (layers.3) failed: a peer rank ended or "
                                            "did not answer in time ("));
        const std::string reason = "rank 1, whose message of 32 bytes rank 0 waited for, did not send it in 200 ms";
        EXPECT_THAT(error.what(), HasSubstr(is_memory() ? reason : ""));
      }
      std::ofstream(mark).flush();
    }
    test::wait_until([&] { return std::filesystem::exists(mark); }, "rank 0");
    std::fflush(nullptr);
    std::_Exit(testing::Test::HasFailure());  // the group is of no use after a failure
  });
}

TEST(MessagesInMemory, OfAnotherSizeAreADisagreement) {
  test::on_ranks(2, [](dist::World& world) {
    auto& group = world.group();
    auto tensor = at::zeros({world.rank() == 0 ? 8 : 9});
    if (world.rank() == 0) return group.send(tensor, 1).wait();
    try {
      group.receive(tensor, 0).wait();
      ADD_FAILURE() << "it took a message of another size";
    } catch (const DistError& error) {
      EXPECT_STREQ(error.what(),
                   "receive from rank 0 over 'world': ranks disagree on their message number 0: rank 0 sent 32 bytes, "
                   "rank 1 receives 36");
    }
  });
}

TEST_P(Messages, AreRecordedWithTheirPeerBesideTheCollectives) {
  const auto path = std::filesystem::temp_directory_path() / "collectives";
  if (test::is_rank()) setenv("TITAN_TRACE_COLLECTIVES", path.c_str(), /*overwrite=*/1);
  test::on_ranks(2, [&](dist::World& world) {
    auto& group = world.group();
    const auto collectives = dist::flight_recorder().groups().at(0).started;
    const int peer = 1 - world.rank();
    auto found = at::empty({4}, at::kLong);
    {
      const Operation operation({}, "layers.3");
      auto works = group.exchange({{at::ones({8}), peer}, {at::ones({4}, at::kLong), peer}}, {});
      group.receive(at::empty({8}), peer).wait();
      group.receive(found, peer).wait();
      dist::wait_for_all(works);
    }
    const auto record = dist::flight_recorder().groups().at(0);
    EXPECT_EQ(record.started, collectives);
    ASSERT_EQ(record.transfers.size(), 4u);
    EXPECT_EQ(record.transfers[1].number, 2u);
    EXPECT_EQ(record.transfers[3].number, 2u);
    EXPECT_EQ(record.transfers[3].peer, peer);
    EXPECT_EQ(record.transfers[3].state, dist::CollectiveState::kFinished);
    EXPECT_EQ(record.sent.at(static_cast<std::size_t>(peer)), 2u);
    EXPECT_EQ(record.received.at(static_cast<std::size_t>(peer)), 2u);
    const auto dump = dist::dump_text("a test");
    const auto of_peer = "rank_" + std::to_string(peer);
    EXPECT_THAT(dump, HasSubstr("collectives started, 2 sends, 2 receives; ranks 0 1"));
    EXPECT_THAT(dump, HasSubstr("\nworld 1 send_to_" + of_peer + " 8 0 float32 [layers.3] step 0 (start) finished "));
    EXPECT_THAT(dump,
                HasSubstr("\nworld 2 receive_from_" + of_peer + " 0 4 int64 [layers.3] step 0 (start) finished "));
    if (world.rank() != 0) return;
    EXPECT_THAT(read_file(path), HasSubstr("send_to_1 world 8 0 float32\nsend_to_1 world 4 0 int64\n"
                                           "receive_from_1 world 0 8 float32\nreceive_from_1 world 0 4 int64\n"));
  });
}

TEST(FakeMessages, ArePlannedAndSendNothing) {
  const auto world = dist::World::fake(4);
  auto& group = world->group();
  const auto tensor = at::empty({2, 8}, at::device(at::kMeta).dtype(at::kBFloat16));
  PlannedCollectives planned;
  group.send(tensor, 1).wait();
  group.receive(tensor, 3).wait();
  auto works = group.exchange({{tensor, 2}}, {{tensor, 2}});
  EXPECT_EQ(works.size(), 2u);
  dist::wait_for_all(works);
  std::vector<std::string> kinds;
  for (const auto& one : planned.take()) {
    kinds.push_back(one.kind);
    EXPECT_EQ(one.group, "world");
    EXPECT_EQ(one.bytes, 32);
  }
  EXPECT_THAT(kinds, ElementsAre("send", "receive", "send", "receive"));
  EXPECT_THROW((void)group.send(at::ones({1}), 1), InternalError);
}

std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(FakeMessages, ToNobodyAreRefused) {
  const auto world = dist::World::fake(4);
  auto& group = world->group();
  const auto tensor = at::empty({2, 8}, at::device(at::kMeta));
  EXPECT_THAT(refused([&] { (void)group.send(tensor, 0); }),
              HasSubstr("send over 'world': rank 0 of the group is this rank itself"));
  EXPECT_THAT(refused([&] { (void)group.receive(tensor, 4); }),
              HasSubstr("receive over 'world': the group has 4 ranks, and none is 4"));
  EXPECT_THAT(refused([&] { (void)group.send(tensor, -1); }), HasSubstr("none is -1"));
  EXPECT_THAT(refused([&] { (void)group.send(tensor.t(), 1); }), HasSubstr("the tensor is not contiguous"));
  EXPECT_THAT(refused([&] {
                (void)group.exchange({{tensor, 1}}, {{at::ones({1}), 1}});
              }),
              HasSubstr("on several devices"));
  EXPECT_TRUE(group.exchange({}, {}).empty());
}

}  // namespace
}  // namespace titan
