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

// Returns a CPU tensor in the memory of a device tensor.
at::Tensor on_host(const at::Tensor& tensor);
// Copies a tensor to the device's memory without recording an access.
at::Tensor to_device(const at::Tensor& result);
// Returns the bytes from the first element of a tensor to the end of its last.
Bytes bytes_of(const at::Tensor& tensor);

// Makes a communicator with NCCL's semantics: its own stream, which waits for the current one; Work::wait() makes the
// current stream wait and releases inputs and outputs, which are held until then. The bytes are sent over Gloo,
// immediately; those of messages on a thread, one operation after the other, and a received one is written in wait().
c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                               std::chrono::milliseconds timeout);

}  // namespace titan::sim
