// The accelerator interface. The engine uses devices through libc10's generic guards; the CUDA module, once loaded,
// registers here what only a CUDA build can provide (NCCL, memory statistics, device-side initialization).
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titan::dist {

struct AcceleratorModule {
  c10::DeviceType type = c10::DeviceType::CPU;
  // Makes a communicator over the given ranks on the current device. Collective over those ranks.
  std::function<c10::intrusive_ptr<c10d::Backend>(c10::intrusive_ptr<c10d::Store>, int rank, int size,
                                                  std::chrono::milliseconds)>
      make_backend;
  std::function<int()> device_count;
  std::function<void(int index)> set_device;
  std::function<std::string(int index)> device_name;
  std::function<std::int64_t(int index)> device_capacity_bytes;
  // Returns the bytes of the capacity that no process uses at this moment.
  std::function<std::int64_t(int index)> device_free_bytes;
  // Returns an identifier of the physical device, the same in every process that sees it.
  std::function<std::string(int index)> device_uuid;
  // Returns why the kernels of this build do not run on the device; empty if they do.
  std::function<std::string(int index)> why_no_kernels;
  // Peak bytes that the caching allocator reserved since the last reset, and peak bytes in use.
  std::function<std::int64_t(int index)> peak_reserved_bytes;
  std::function<std::int64_t(int index)> peak_active_bytes;
  std::function<void(int index)> reset_peak_memory;
  // Counts since the process started: allocations retried after the caching allocator freed its cache, and
  // allocations that still failed.
  std::function<std::int64_t(int index)> num_alloc_retries;
  std::function<std::int64_t(int index)> num_ooms;
  // Fills `out` (contiguous float32) with values that depend only on seed, stream and the global element index
  // first_index + i: uniform in [0, 1), from Philox-4x32-10 (nn/random/counter_rng.h is the plain reference).
  std::function<void(at::Tensor out, std::uint64_t seed, std::uint64_t stream, std::int64_t first_index)> fill_uniform;
  // Makes the caching allocator record its last `max_entries` allocations and frees, with stack traces, and call
  // `on_out_of_memory` (on the allocating thread) before it throws. Call once per process.
  std::function<void(std::size_t max_entries, std::function<void()> on_out_of_memory)> record_memory_history;
  // Returns the allocator's blocks and recorded history as the pickle that pytorch.org/memory_viz reads.
  std::function<std::string()> memory_snapshot;
};

void register_accelerator(AcceleratorModule module);

// Returns the registered module; null until the CUDA module is loaded.
const AcceleratorModule* accelerator();

// Loads libtitan_cuda.so from the program's folder, or from ../lib of an installation, if a CUDA driver that is new
// enough finds a device. Turns on the caching allocator's expandable segments, without which the pools of the side
// streams fragment, unless PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF is set or a device does not support them.
// Sets TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC unless it is set, so that c10d reports a failed collective in seconds.
// Returns why there is no accelerator; empty if there is one, and then accelerator() is set. Idempotent.
std::string load_accelerator_module();

// True if a CUDA driver finds a device here, even if load_accelerator_module() cannot use it.
bool has_cuda_device();

}  // namespace titan::dist
