// NCCL as a c10d backend.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace titan::cuda {

// A communicator over the ranks that meet in `store`, on the current device and on streams of high priority, so that a
// collective is not queued behind computation. Collective over these ranks: it returns when they are connected. Throws
// c10's errors.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout);

// The thread that watches NCCL has nobody to tell that a collective failed or took too long: it throws, and the process
// ends by std::terminate. From now on it ends with the reason in one line and kExitPeerFailed. Other exceptions end as
// before.
void end_on_nccl_failure();

}  // namespace titan::cuda
