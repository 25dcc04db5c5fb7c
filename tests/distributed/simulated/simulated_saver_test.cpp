// Tests asynchronous saves of a device's state, on the simulated device.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/async_saver.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan {
namespace {

using ::testing::IsEmpty;

checkpoint::Item item_of(const char* name, const at::Tensor& tensor) {
  return checkpoint::TensorItem{.fqn = name, .path = {}, .local = tensor, .spec = {}};
}

TEST(SimulatedSaver, CopiesBesideTrainingWithoutStoppingIt) {
  sim::install();
  c10::impl::VirtualGuardImpl(sim::device().type()).synchronizeDevice(sim::device().index());
  const at::NoGradGuard no_grad;
  checkpoint::AsyncSaver saver;
  const auto live = at::zeros({64, 2}, at::TensorOptions().device(sim::device())), other = live.clone();
  sim::reset();
  std::vector<float> saved;
  for (int i = 0; i < 3; ++i) {
    live.fill_(static_cast<double>(i));
    other.fill_(static_cast<double>(i + 1));
    saver.start({item_of("w", live), item_of("v", other)}, [&](const std::vector<checkpoint::Item>& items) {
      for (const auto& item : items) saved.push_back(std::get<checkpoint::TensorItem>(item).local.sum().item<float>());
    });
    live.add(1);  // a forward: it only reads
    saver.wait_staged();
  }
  saver.wait();
  EXPECT_EQ(saved, (std::vector<float>{0, 128, 128, 256, 256, 384}));
  const auto found = sim::findings();
  EXPECT_THAT(found.races, IsEmpty());
  for (const auto& it : found.synchronizations) {
    EXPECT_EQ(it.thread, "background") << it.what << "\n" << it.stack;
    EXPECT_EQ(it.what, "an event") << it.stack;  // a copy of a tensor that waits would hold up the stream that trains
  }
  EXPECT_EQ(found.synchronizations.size(), 3u);  // one per save, however many tensors it has
}

TEST(SimulatedSaver, TheFirstSaveFindsItsMemoryPageLocked) {
  sim::install();
  const auto options = at::TensorOptions().device(sim::device());
  const std::vector<checkpoint::Item> items = {item_of("w", at::ones({64, 2}, options)), item_of("step", at::ones({})),
                                               item_of("v", at::ones({8}, options))};
  checkpoint::AsyncSaver saver;
  const auto ignore = [](const std::vector<checkpoint::Item>&) {};
  sim::reset();
  saver.reserve(items);
  saver.wait();
  EXPECT_EQ(sim::findings().num_pinned_allocations, 2) << "a tensor on the host needs none";
  saver.start(items, ignore);
  saver.wait();
  saver.reserve(items);  // once a save has begun, its memory is there
  saver.wait();
  EXPECT_EQ(sim::findings().num_pinned_allocations, 2);
}

}  // namespace
}  // namespace titan
