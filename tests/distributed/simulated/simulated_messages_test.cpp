// Tests messages between ranks on the simulated device: their order on streams, and that it finds a wait that is
// missing.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>

#include "base/error.h"
#include "tests/support/run_ranks.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kNumel = 1 << 12;

at::Tensor filled(double value) {
  return at::full({kNumel}, value, at::TensorOptions(at::kFloat).device(sim::device()));
}

void on_devices(int ranks, const std::function<void(dist::World&)>& body) {
  sim::install();
  test::on_ranks(
      ranks,
      [&](dist::World& world) {
        sim::reset();
        body(world);
      },
      sim::device().type());
}

// Every rank passes on what it has received, and adds it up meanwhile: ring attention.
void pass_around(dist::World& world) {
  auto& group = world.group();
  const int size = group.size(), rank = group.rank();
  auto here = filled(rank), coming = filled(-1), sum = filled(0);
  for (int step = 0; step < size; ++step) {
    std::vector<dist::Work> works;
    if (step + 1 < size) works = group.exchange({{here, (rank + 1) % size}}, {{coming, (rank + size - 1) % size}});
    sum.add_(here);
    dist::wait_for_all(works);
    std::swap(here, coming);
  }
  EXPECT_THAT(sim::findings().races, IsEmpty());
  EXPECT_THAT(sim::findings().synchronizations, IsEmpty());
  EXPECT_TRUE(sum.to(at::kCPU).equal(at::full({kNumel}, size * (size - 1) / 2.0)));
}

TEST(SimulatedMessages, AreInOrderInARing) { on_devices(4, pass_around); }

TEST(SimulatedMessages, FindAReadThatDoesNotWait) {
  on_devices(2, [](dist::World& world) {
    const int peer = 1 - world.rank();
    auto sent = filled(1), received = filled(2);
    auto works = world.group().exchange({{sent, peer}}, {{received, peer}});
    const auto early = received + 1;
    EXPECT_THAT(sim::findings().races,
                ElementsAre(AllOf(HasSubstr("aten::add"), HasSubstr("is not ordered after messages, output (writes"))));
    dist::wait_for_all(works);
    EXPECT_TRUE((received + 1).to(at::kCPU).equal(at::full({kNumel}, 2.0)));
    EXPECT_EQ(sim::findings().races.size(), 1u);
  });
}

TEST(SimulatedMessages, FindAWriteOfWhatIsStillSent) {
  on_devices(2, [](dist::World& world) {
    auto tensor = filled(1);
    if (world.rank() == 1) return world.group().receive(tensor, 0).wait();
    auto work = world.group().send(tensor, 1);
    tensor.fill_(2);
    EXPECT_THAT(sim::findings().races,
                ElementsAre(AllOf(HasSubstr("aten::fill"), HasSubstr("is not ordered after messages, input (reads"))));
    work.wait();
    tensor.fill_(3);
    EXPECT_EQ(sim::findings().races.size(), 1u);
  });
}

// The receive waits for the stream that is current at its start, as NCCL's does, but not for another one.
TEST(SimulatedMessages, FindATensorThatAnotherStreamStillUses) {
  on_devices(2, [](dist::World& world) {
    const c10::impl::VirtualGuardImpl guard(sim::device().type());
    const auto side = guard.getStreamFromGlobalPool(sim::device(), false);
    auto tensor = filled(1);
    c10::Event event(sim::device().type());
    event.record(guard.getStream(sim::device()));
    event.block(side);
    at::Tensor sum;
    {
      const c10::StreamGuard on_side(side);
      sum = tensor.sum();
    }
    if (world.rank() == 0) return world.group().send(tensor, 1).wait();
    world.group().receive(tensor, 0).wait();
    EXPECT_THAT(sim::findings().races, ElementsAre(HasSubstr("messages, output")));
  });
}

// On NCCL's streams both sends would wait for a receive that is queued after the other one.
TEST(SimulatedMessages, OutOfOneExchangeHangWhereNcclWould) {
  on_devices(2, [](dist::World& world) {
    auto& group = world.group();
    const int peer = 1 - world.rank();
    auto sent = filled(1), received = filled(2);
    {
      auto works = group.exchange({{sent, peer}}, {{received, peer}});
      dist::wait_for_all(works);
    }
    group.set_timeout(std::chrono::milliseconds(300));
    auto send = group.send(sent, peer);
    auto receive = group.receive(received, peer);
    EXPECT_THROW(receive.wait(), PeerError);
    std::fflush(nullptr);
    std::_Exit(testing::Test::HasFailure());  // the group is of no use after a failure
  });
}

// Ranks that share a device send through the host. A receive is written on the stream that waits for it, after what
// the stream of its start had queued.
TEST(StagedMessages, AreInOrder) {
  if (test::is_rank()) setenv("TITAN_DEVICE_COMM", "gloo", /*overwrite=*/1);
  on_devices(2, [](dist::World& world) {
    auto tensor = filled(world.rank());
    tensor.add_(5);
    if (world.rank() == 0) {
      auto work = world.group().send(tensor, 1);
      tensor.fill_(9);  // the message has left it
      work.wait();
    } else {
      const c10::impl::VirtualGuardImpl guard(sim::device().type());
      const c10::StreamGuard on_side(guard.getStreamFromGlobalPool(sim::device(), false));
      auto work = [&] {
        const c10::StreamGuard on_first(c10::Stream(c10::Stream::DEFAULT, sim::device()));
        return world.group().receive(tensor, 0);
      }();
      work.wait();
      tensor.add_(10);
      EXPECT_TRUE(tensor.to(at::kCPU).equal(at::full({kNumel}, 15.0)));
    }
    EXPECT_THAT(sim::findings().races, IsEmpty());
  });
}

}  // namespace
}  // namespace titan
