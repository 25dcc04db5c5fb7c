// Collectives and messages of CPU tensors between ranks of one host, through memory instead of a socket.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/shared_memory/shared_segment.h"

namespace titan::dist {

// Collectives of the backend below that c10d does not have: an all-gather whose output all ranks share, and a
// reduce-scatter of parts.
class CollectivesInMemory {
 public:
  struct Started {
    at::Tensor output;  // [numel], held by this rank until all tensors that share its memory are gone
    c10::intrusive_ptr<c10d::Work> work;
  };
  virtual ~CollectivesInMemory() = default;
  // True if there is memory for another such output. The same on all ranks.
  virtual bool can_allocate(at::ScalarType dtype, std::int64_t numel) const = 0;
  // `write` writes this rank's parts into the output: at once if no rank needs the previous content, otherwise in the
  // work's wait(). After that the output is complete and read-only. Ranks must wait for these works and free the
  // outputs in the same order, relative to all their other waits: a rank that has not written yet blocks the others.
  virtual Started all_gather_in_place(at::ScalarType dtype, std::int64_t numel,
                                      std::function<void(const at::Tensor& output)> write) = 0;
  // Like ProcessGroup's; the work's result() is the sum.
  virtual c10::intrusive_ptr<c10d::Work> reduce_scatter_parts(const at::Tensor& own, const at::Tensor& others,
                                                              at::ScalarType dtype, const c10d::ReduceOp& op) = 0;
};

// Returns a backend whose collectives read the other ranks' inputs in their memory. It leaves the rest to `gloo`
// (reductions of dtypes other than floating point and 32- or 64-bit integers, large all-reduces of more than 8
// ranks). Returns `gloo` itself, with a warning, if some rank cannot access another's memory. Collective; all ranks
// of `gloo` must be on one host. They exchange the addresses of their segments, of at most `capacity` bytes each,
// through `store`, which nothing else uses. `global_rank` is for messages. Except for shared outputs, a rank writes
// only its own memory, so that its pages are on the NUMA node where it runs; the others read it there.
//
// An operation copies its input when it starts, and does not wait; wait() does the rest on the caller's thread. Sums
// equal Gloo's to the bit: their order depends only on sizes, so all ranks get the same values in every run. wait()
// throws PeerError if a peer has ended or the timeout passed, DistError if ranks started different operations.
// allocateTensor() returns memory that need not be copied: do not write it again after passing it to an all-gather or
// to reduce_scatter_parts(). allgather() without outputs copies nothing: the work's result() is each rank's input in
// place, read-only, and kept for the tensors' life. send() and recv() match in the order of their starts and ignore
// tags; a send is over when it has started, and does not copy what is from allocateTensor(). The backend is also a
// CollectivesInMemory; shared outputs are in the memory of the group's first rank, each page where it was written
// first.
c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo, c10d::Store& store,
                                                             int global_rank, std::chrono::milliseconds timeout,
                                                             std::size_t capacity = SharedSegment::kDefaultCapacity);

}  // namespace titan::dist
