// Tests that the simulated device finds planted faults, one of each kind, and none in the same code in correct order.
#include "tests/support/simulated_device/simulated_device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace titan::sim {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SimulatedDevice : public ::testing::Test {
 protected:
  SimulatedDevice() {
    install();
    c10::impl::VirtualGuardImpl(device().type()).synchronizeDevice(device().index());  // ends the previous test
    reset();
  }

  static c10::Stream side_stream() {
    return c10::impl::VirtualGuardImpl(device().type()).getStreamFromGlobalPool(device(), false);
  }
  static c10::Stream current() { return c10::impl::VirtualGuardImpl(device().type()).getStream(device()); }
  // Makes `later` wait for what is queued on `earlier`.
  static void order(const c10::Stream& earlier, const c10::Stream& later) {
    c10::Event event(device().type());
    event.record(earlier);
    event.block(later);
  }
  static at::Tensor numbers(std::int64_t n) { return at::arange(n, at::TensorOptions(at::kFloat).device(device())); }
};

TEST_F(SimulatedDevice, ComputesAsTheHostDoes) {
  const auto x = at::randn({3, 4}).set_requires_grad(true), w = at::randn({5, 4});
  const auto there = x.detach().to(device()).requires_grad_(), weight = w.to(device());
  at::silu(at::linear(x, w)).sum().backward();
  at::silu(at::linear(there, weight)).sum().backward();
  // Other kernels than the host's own compute the same matmuls: sums of five terms.
  EXPECT_TRUE(at::allclose(there.grad().to(at::kCPU), x.grad(), 1e-5, 1e-6));
  EXPECT_TRUE(there.t().slice(0, 1, 3).contiguous().to(at::kCPU).equal(x.detach().t().slice(0, 1, 3)));
  EXPECT_THAT(findings().races, IsEmpty());
}

TEST_F(SimulatedDevice, FindsAReadThatDoesNotWait) {
  const auto side = side_stream();
  const auto x = numbers(8);
  {
    const c10::StreamGuard guard(side);
    x.mul_(2);
  }
  EXPECT_THAT(findings().races, Each(AllOf(HasSubstr("aten::mul"), HasSubstr("is not ordered after"))));
  EXPECT_EQ(findings().races.size(), 2u);  // it reads, and it writes
}

TEST_F(SimulatedDevice, AcceptsOneThatDoes) {
  const auto side = side_stream();
  const auto x = numbers(8);
  order(current(), side);
  {
    const c10::StreamGuard guard(side);
    x.mul_(2);
  }
  order(side, current());
  x.add_(1);
  EXPECT_THAT(findings().races, IsEmpty());
  EXPECT_THAT(findings().synchronizations, IsEmpty());
}

TEST_F(SimulatedDevice, FindsMemoryThatIsGivenOutTooEarly) {
  const auto side = side_stream();
  auto x = numbers(1 << 10);
  at::Tensor sum;
  order(current(), side);
  {
    const c10::StreamGuard guard(side);
    sum = x.sum();
  }
  x.reset();
  const auto other = numbers(1 << 10);  // the same block, from the pool of the compute stream
  EXPECT_THAT(findings().races, ElementsAre(AllOf(HasSubstr("may be given out again"), HasSubstr("aten::sum")),
                                            AllOf(HasSubstr("was given out again"), HasSubstr("aten::sum"))));
}

// The block is not given out again here: what is allocated next comes from the pool of large blocks.
TEST_F(SimulatedDevice, FindsMemoryThatIsFreedTooEarly) {
  const auto side = side_stream();
  for (const bool waits : {false, true}) {
    auto x = numbers(1 << 10);
    order(current(), side);
    {
      const c10::StreamGuard guard(side);
      x.sum();
    }
    x.reset();
    const auto other = at::empty({8 << 20}, at::TensorOptions(at::kFloat).device(device()));
    if (waits) order(side, current());
    sim::reset();
    other.zero_();
    const auto found =
        HasSubstr("was freed while another stream may still use it, and may be given out again: aten::sum");
    EXPECT_THAT(findings().races, waits ? testing::Matcher<std::vector<std::string>>(IsEmpty())
                                        : testing::Matcher<std::vector<std::string>>(ElementsAre(found)));
  }
}

TEST_F(SimulatedDevice, FindsAHostThatDoesNotWait) {
  const auto x = numbers(8);
  auto host = at::empty({8}, at::TensorOptions().pinned_memory(true));
  host.copy_(x, /*non_blocking=*/true);
  EXPECT_EQ(findings().synchronizations.size(), 0u);
  EXPECT_EQ(host.sum().item<float>(), 28);
  EXPECT_THAT(findings().races, ElementsAre(HasSubstr("the host does not wait")));
}

TEST_F(SimulatedDevice, CountsSynchronizations) {
  const auto x = numbers(8);
  EXPECT_EQ(x.sum().item<float>(), 28);
  x.to(at::kCPU);
  EXPECT_EQ(findings().synchronizations.size(), 2u);
}

TEST_F(SimulatedDevice, CountsMemory) {
  const auto before = findings().live_bytes;
  {
    const auto x = at::empty({1 << 20}, at::TensorOptions(at::kFloat).device(device()));
    EXPECT_EQ(findings().live_bytes - before, 4 << 20);
  }
  EXPECT_EQ(findings().live_bytes, before);
  EXPECT_EQ(findings().peak_live_bytes - before, 4 << 20);
}

}  // namespace
}  // namespace titan::sim
