// The entry of libtitan_cuda.so: registers what the engine asks of an accelerator (distributed/device.h).
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/memory_snapshot.h>
#include <torch/library.h>

#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "base/error.h"
#include "cuda/fused_launches.h"
#include "cuda/nccl_backend.h"
#include "distributed/accelerator/cuda_driver.h"
#include "distributed/device.h"
#include "kernels/cuda/fill_uniform.h"

namespace titan::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

c10::DeviceIndex device_index(int index) { return static_cast<c10::DeviceIndex>(index); }

// Initializes the allocator too: memory statistics exist only after that.
void set_device(int index) {
  c10::cuda::set_device(device_index(index));
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
}

cudaDeviceProp properties(int index) {
  cudaDeviceProp found;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&found, index));
  return found;
}

// Returns 0 for a full device, which has no room even for the context that the query needs.
std::int64_t free_bytes(int index) {
  std::size_t free = 0, total = 0;
  auto error = cudaSetDevice(index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error
    return 0;
  }
  C10_CUDA_CHECK(error);
  return static_cast<std::int64_t>(free);
}

std::string uuid(int index) {
  const auto found = properties(index).uuid;
  return std::string(std::begin(found.bytes), std::end(found.bytes));
}

std::string why_no_kernels(int index) {
  const auto found = properties(index);
  return dist::why_no_kernels(found.name, 10 * found.major + found.minor, TITAN_LOWEST_CAPABILITY);
}

constexpr auto kAllPools = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

std::int64_t peak_reserved_bytes(int index) {
  return allocator::getDeviceStats(device_index(index)).reserved_bytes[kAllPools].peak;
}

std::int64_t peak_active_bytes(int index) {
  return allocator::getDeviceStats(device_index(index)).active_bytes[kAllPools].peak;
}

void fill_uniform(at::Tensor out, std::uint64_t seed, std::uint64_t stream, std::int64_t first_index) {
  TITAN_CHECK(out.is_cuda() && out.is_contiguous() && out.scalar_type() == at::kFloat,
              "fill_uniform needs a contiguous float32 CUDA tensor");
  TITAN_CHECK(first_index >= 0, "fill_uniform from element " + std::to_string(first_index));
  const c10::cuda::CUDAGuard guard(out.device());
  const Fill fill{seed, stream, static_cast<std::uint64_t>(first_index), out.numel()};
  C10_CUDA_CHECK(launch_fill_uniform(out.mutable_data_ptr<float>(), fill, c10::cuda::getCurrentCUDAStream()));
}

// Records as torch.cuda.memory._record_memory_history(max_entries=...) does. Stacks get their names from the loader:
// addr2line, torch's default, takes minutes for libraries as large as torch's.
void record_memory_history(std::size_t max_entries, std::function<void()> on_out_of_memory) {
  setenv("TORCH_SYMBOLIZE_MODE", "dladdr", /*overwrite=*/0);
  torch::cuda::_record_memory_history("all", "all", "all", max_entries);
  allocator::attachOutOfMemoryObserver(
      [call = std::move(on_out_of_memory)](std::int64_t, std::size_t, std::size_t, std::size_t) { call(); });
}

}  // namespace
}  // namespace titan::cuda

extern "C" void titan_register_cuda() {
  using namespace titan;
  // Torch looks up its CUDA part once and keeps the answer: if asked before this library was loaded, it would never
  // find it.
  TITAN_CHECK(at::Context::hasCUDART(), "torch was asked about CUDA before the CUDA module was loaded");
  cuda::end_on_nccl_failure();
  static const device::DeviceOperators operators(c10::DeviceType::CUDA, cuda::fused_launches());
  kernels::provide_kernels(c10::DeviceType::CUDA,
                           [](torch::Library& library) { device::register_operators(library, operators); });
  dist::register_accelerator({
      .type = c10::DeviceType::CUDA,
      .make_backend = cuda::make_nccl_backend,
      .device_count = [] { return static_cast<int>(c10::cuda::device_count()); },
      .set_device = cuda::set_device,
      .device_name = [](int index) { return std::string(cuda::properties(index).name); },
      .device_capacity_bytes =
          [](int index) { return static_cast<std::int64_t>(cuda::properties(index).totalGlobalMem); },
      .device_free_bytes = cuda::free_bytes,
      .device_uuid = cuda::uuid,
      .why_no_kernels = cuda::why_no_kernels,
      .peak_reserved_bytes = cuda::peak_reserved_bytes,
      .peak_active_bytes = cuda::peak_active_bytes,
      .reset_peak_memory =
          [](int index) { c10::cuda::CUDACachingAllocator::resetPeakStats(cuda::device_index(index)); },
      .num_alloc_retries =
          [](int index) {
            return c10::cuda::CUDACachingAllocator::getDeviceStats(cuda::device_index(index)).num_alloc_retries;
          },
      .num_ooms =
          [](int index) { return c10::cuda::CUDACachingAllocator::getDeviceStats(cuda::device_index(index)).num_ooms; },
      .fill_uniform = cuda::fill_uniform,
      .record_memory_history = cuda::record_memory_history,
      .memory_snapshot = torch::cuda::_memory_snapshot_pickled,
  });
}
