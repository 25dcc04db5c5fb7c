// NCCL as a c10d backend.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titan::cuda {

// Creates a communicator over the ranks that meet in `store`, on the current device and on high-priority streams, so
// that a collective is not queued behind computation. Collective over these ranks: returns when they are connected.
// Throws c10's errors.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout);

// Makes NCCL's watchdog end the process with one line and kExitPeerFailed when a collective fails or takes too long,
// and with kExitFailed when this rank's device fails. The watchdog can only throw, which would end the process by
// std::terminate. Other exceptions end it as before.
void end_on_nccl_failure();

}  // namespace titan::cuda
