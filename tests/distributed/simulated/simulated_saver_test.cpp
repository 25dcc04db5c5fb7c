// Tests asynchronous saves of a device's state, on the simulated device.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/async_saver.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan {
namespace {

using ::testing::IsEmpty;

TEST(SimulatedSaver, CopiesBesideTrainingWithoutStoppingIt) {
  sim::install();
  c10::impl::VirtualGuardImpl(sim::device().type()).synchronizeDevice(sim::device().index());
  const at::NoGradGuard no_grad;
  checkpoint::AsyncSaver saver;
  const auto live = at::zeros({64, 2}, at::TensorOptions().device(sim::device()));
  sim::reset();
  std::vector<float> saved;
  for (int i = 0; i < 3; ++i) {
    live.fill_(static_cast<double>(i));
    checkpoint::TensorItem item{.fqn = "w", .path = {}, .local = live, .spec = {}};
    saver.start({item}, [&](const std::vector<checkpoint::Item>& items) {
      saved.push_back(std::get<checkpoint::TensorItem>(items[0]).local.sum().item<float>());
    });
    live.add(1);  // a forward: it only reads
    saver.wait_staged();
  }
  saver.wait();
  EXPECT_EQ(saved, (std::vector<float>{0, 128, 256}));
  const auto found = sim::findings();
  EXPECT_THAT(found.races, IsEmpty());
  for (const auto& it : found.synchronizations) EXPECT_EQ(it.thread, "background") << it.what << "\n" << it.stack;
  EXPECT_EQ(found.synchronizations.size(), 3u);  // one per save, however many tensors it has
}

}  // namespace
}  // namespace titan
