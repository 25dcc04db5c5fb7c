// Collectives of CPU tensors between ranks of one host, through memory instead of a socket.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/shared_memory/shared_segment.h"

namespace titan::dist {

// What the backend below does beside c10d's collectives: an all-gather whose output exists once for all ranks, and a
// reduce-scatter of parts.
class CollectivesInMemory {
 public:
  struct Started {
    at::Tensor output;  // [numel], this rank's until it and all that shares its memory are gone
    c10::intrusive_ptr<c10d::Work> work;
  };
  virtual ~CollectivesInMemory() = default;
  // Whether there is memory for such an output beside those that exist; the same on all ranks.
  virtual bool has_place_for(at::ScalarType dtype, std::int64_t numel) const = 0;
  // `write` puts this rank's parts where they belong in the output: now where no rank needs what lay there before, else
  // in the work's wait(). From that on the output is there, to be read only. Ranks must wait for these works, and let go
  // of the outputs, in one order with all that they wait for: a rank that has not written yet keeps the others waiting.
  virtual Started all_gather_in_place(at::ScalarType dtype, std::int64_t numel,
                                      std::function<void(const at::Tensor& output)> write) = 0;
  // As ProcessGroup's; the work's result() is the sum.
  virtual c10::intrusive_ptr<c10d::Work> reduce_scatter_parts(const at::Tensor& own, const at::Tensor& others,
                                                              at::ScalarType dtype, const c10d::ReduceOp& op) = 0;
};

// A backend in which collectives read the other ranks' inputs in their memory; what it does not do itself (sums of
// other dtypes than floating point and 32- or 64-bit integers, large all-reduces of more than 8 ranks) is `gloo`'s.
// `gloo` itself where some rank cannot reach another's memory, with a warning. Collective; all ranks of `gloo` must be
// on one host. Through `store`, which is theirs alone, they tell each other where their memory is, each at most
// `capacity` bytes of it. `global_rank` is for messages. A rank writes its own memory alone, so that its pages lie on
// the NUMA node where it runs; the others read it there.
//
// An operation copies its input when it starts, and waits for nobody; wait() does the rest on the caller's thread. Sums
// are Gloo's to the bit: in its order, which depends on sizes alone, so that all ranks have the same numbers in
// every run. wait() throws PeerError when a peer has ended or the time is over, DistError when ranks started different
// operations. allocateTensor() gives memory that need not be copied: whoever passes it as the input of an all-gather
// or of reduce_scatter_parts() does not write it again. allgather() without outputs copies nothing at all: the work's
// result() is then each rank's input where it lies, to be read only, and kept for the tensors' life. It is a
// CollectivesInMemory, too; outputs that exist once lie in the memory of the group's first rank, each page where it was
// written first.
c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo, c10d::Store& store,
                                                             int global_rank, std::chrono::milliseconds timeout,
                                                             std::size_t capacity = SharedSegment::kDefaultCapacity);

}  // namespace titan::dist
