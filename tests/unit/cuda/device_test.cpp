// What only a device can show. Run by scripts/gpu_check.sh.
#include "distributed/device.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/process_group.h"
#include "nn/random/counter_rng.h"

namespace titan {
namespace {

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = dist::load_accelerator_module(); !reason.empty()) GTEST_SKIP() << reason;
    module_ = dist::accelerator();
    module_->set_device(0);
  }
  const dist::AcceleratorModule* module_ = nullptr;
  const at::Device device_{c10::DeviceType::CUDA, 0};
};

constexpr std::uint64_t kSeed = 42, kStream = 0xfedcba9876543210u;
constexpr std::int64_t kRoom = 8;

// Fills elements [offset, offset + numel) of device memory and compares all of it, the room around included.
void expect_host_values(at::Device device, std::int64_t offset, std::int64_t numel, std::int64_t first_index) {
  auto on_device = at::full({offset + numel + kRoom}, -1.0f, at::TensorOptions().device(device));
  auto on_host = at::full({offset + numel + kRoom}, -1.0f);
  nn::fill_counter_uniform(on_device.narrow(0, offset, numel), kSeed, kStream, first_index);
  nn::fill_counter_uniform(on_host.narrow(0, offset, numel), kSeed, kStream, first_index);
  EXPECT_TRUE(on_device.cpu().equal(on_host)) << "offset " << offset << " numel " << numel << " first " << first_index;
}

TEST_F(CudaDevice, FillsTheHostsBitsAtEveryAlignmentAndLength) {
  for (std::int64_t first = 0; first < 8; ++first) {
    for (std::int64_t numel = 0; numel <= 20; ++numel) {
      for (const std::int64_t offset : {0, 1, 3}) expect_host_values(device_, offset, numel, first);
    }
  }
}

// More groups than the grid has threads, and indices beyond 32 bits.
TEST_F(CudaDevice, FillsTheHostsBitsInLargeTensors) {
  expect_host_values(device_, 1, 5'000'003, 2);
  expect_host_values(device_, 0, 5'000'003, (std::int64_t{1} << 34) - 1'000'001);
}

// The fill is queued behind a product that takes longer than starting it, which overwrites the same memory.
TEST_F(CudaDevice, FillsOnTheCurrentStream) {
  const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  const c10::StreamGuard guard(stream);
  const auto a = at::ones({4096, 4096}, at::TensorOptions().device(device_));
  auto out = at::empty({4096, 4096}, a.options());
  for (int i = 0; i < 20; ++i) at::mm_out(out, a, a);
  nn::fill_counter_uniform(out.view(-1), kSeed, kStream, 0);
  auto expected = at::empty({4096 * 4096});
  nn::fill_counter_uniform(expected, kSeed, kStream, 0);
  EXPECT_TRUE(out.cpu().view(-1).equal(expected));
}

TEST_F(CudaDevice, TellsNameCapacityAndPeakMemory) {
  constexpr std::int64_t kBytes = 64 << 20;
  EXPECT_FALSE(module_->device_name(0).empty());
  EXPECT_GT(module_->device_capacity_bytes(0), std::int64_t{1} << 30);
  module_->reset_peak_memory(0);
  const auto before = module_->peak_reserved_bytes(0);
  const auto held = at::empty({before + kBytes}, at::TensorOptions().device(device_).dtype(at::kByte));
  EXPECT_GE(module_->peak_reserved_bytes(0), before + kBytes);
  EXPECT_LE(module_->peak_reserved_bytes(0), module_->device_capacity_bytes(0));
}

// One rank: NCCL starts, its collectives run and keep order with the current stream. Two ranks need two devices.
TEST_F(CudaDevice, RunsNcclCollectives) {
  auto backend = module_->make_backend(c10::make_intrusive<c10d::HashStore>(), 0, 1, std::chrono::seconds(60));
  const auto input = at::arange(1000, at::TensorOptions().device(device_).dtype(at::kFloat));
  auto gathered = at::zeros({1000}, input.options());
  auto mutable_input = input.clone();
  backend->_allgather_base(gathered, mutable_input)->wait();
  EXPECT_TRUE(gathered.equal(input));
  auto scattered = at::zeros({1000}, input.options());
  backend->_reduce_scatter_base(scattered, gathered)->wait();
  EXPECT_TRUE(scattered.equal(input));
  std::vector<at::Tensor> tensors = {scattered};
  backend->allreduce(tensors)->wait();
  EXPECT_TRUE(scattered.equal(input));
}

}  // namespace
}  // namespace titan
