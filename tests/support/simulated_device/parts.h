// The parts of the simulated device that install() puts together.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/support/simulated_device/state.h"

namespace titan::sim {

void install_hooks();
void install_allocator();
void install_host_watch();
void install_fused_ops();
void install_attention();

// A tensor of the CPU in the same memory as one of the device.
at::Tensor on_host(const at::Tensor& tensor);
// A copy in the device's memory, of which nothing is noted.
at::Tensor to_device(const at::Tensor& result);
// The bytes from a tensor's first to behind its last element.
Bytes bytes_of(const at::Tensor& tensor);

// A communicator with NCCL's semantics: a stream of its own, which waits for the current one; Work::wait() makes the current
// stream wait and lets inputs and outputs go, which are held until then. The bytes go over Gloo, at once.
c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                               std::chrono::milliseconds timeout);

}  // namespace titan::sim
