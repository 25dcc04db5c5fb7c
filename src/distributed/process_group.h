// A group of ranks that communicate. Wraps one c10d backend per device type (Gloo for CPU tensors, NCCL for CUDA
// tensors).
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/flight/flight_recorder.h"

namespace titan::dist {

class CollectivesInMemory;

enum class ReduceOp { kSum, kMax, kMin, kAvg };  // kAvg: of reduce_scatter_parts() alone

// A started collective. wait() blocks the host on CPU; on CUDA it makes the current stream wait. Waiting twice is fine.
// Throws PeerError when a peer vanished or the group's timeout passed.
class Work {
 public:
  Work() = default;  // already complete
  Work(c10::intrusive_ptr<c10d::Work> work, const CollectiveTicket& ticket) : work_(std::move(work)), ticket_(ticket) {}
  void wait();
  // Of all_gather_parts, in place of wait() and once: the inputs [n] of all ranks, in rank order, to be read only. They
  // keep the other ranks' memory: drop them soon. Of reduce_scatter_parts: the sum [n] alone.
  std::vector<at::Tensor> wait_for_parts();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  CollectiveTicket ticket_;
};

// The output of an all-gather that exists once for the ranks of a host.
struct GatheredInPlace {
  at::Tensor output;  // there after wait(), to be read only; its memory is kept for the life of all that shares it
  Work work;
};

// Every method below is collective: all ranks of the group must call it, in the same order, with the same sizes.
// Tensors are contiguous; they must stay alive until wait(). A group of one rank copies, and communicates nothing.
class ProcessGroup {
 public:
  // `ranks`: the global ranks of the members in group order, `rank` this process's index among them. Backends are null
  // when size is 1, or when the group is fake: then collectives of tensors on the meta device are over at
  // once, all ranks' byte strings are this one's, and tensors with numbers throw InternalError. `name` appears in
  // messages ("fsdp", "world").
  ProcessGroup(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> cpu,
               c10::intrusive_ptr<c10d::Backend> accelerator);

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // global ranks

  // `output` may hold `input` at this rank's place.
  // output [size * n] = the inputs [n] of all ranks, in rank order. Same dtype.
  [[nodiscard]] Work all_gather(at::Tensor output, at::Tensor input);
  // The same for tensors whose memory the ranks share: nothing is copied, and Work::wait_for_parts() has the result.
  [[nodiscard]] Work all_gather_parts(at::Tensor input);
  // The same where ranks share memory, into one output [numel] of all of them. `write` gets it, and writes this rank's
  // parts (`input_numel` elements, wherever all ranks agree that they belong): at once where no rank needs what lay there
  // before, else in wait(). All ranks must wait for these, and let go of their outputs, in one order with all that they
  // wait for: a rank that has not written yet keeps the others waiting.
  [[nodiscard]] GatheredInPlace all_gather_in_place(std::int64_t numel, const at::TensorOptions& options,
                                                    std::int64_t input_numel,
                                                    std::function<void(const at::Tensor& output)> write);
  // output [n] = this rank's n elements of the reduction of all inputs [size * n].
  [[nodiscard]] Work reduce_scatter(at::Tensor output, at::Tensor input, ReduceOp op);
  // The same sum for ranks that share memory, without showing them what they do not need: `own` [n] has this rank's
  // elements, `others` [(size - 1) * n] those of the other ranks, in rank order; best an exchange_buffer. Each may have
  // a narrower dtype than `dtype`, in which the sum is made, and which holds its values exactly. Work::wait_for_parts()
  // has the sum, in `own` where that has its dtype. kSum, or kAvg: the same sum, divided by size() while it is in the
  // cache.
  [[nodiscard]] Work reduce_scatter_parts(at::Tensor own, at::Tensor others, at::ScalarType dtype, ReduceOp op);
  // In place.
  [[nodiscard]] Work all_reduce(at::Tensor tensor, ReduceOp op);
  [[nodiscard]] Work broadcast(at::Tensor tensor, int root);
  void barrier();

  // Byte strings of any length each; for plans and metadata, not for tensors.
  std::vector<std::string> all_gather_bytes(const std::string& bytes);
  std::string broadcast_bytes(const std::string& bytes, int root);

  // Whether ranks read each other's tensors on `device` where they lie. The same on all ranks.
  bool shares_memory(at::Device device) const;
  // Whether all_gather_in_place() has memory for such an output, and pays: it saves each rank the copies of the others'
  // parts, most of the whole where ranks are many. But shared memory has small pages where the system is not told
  // otherwise (shmem_enabled), and computing with these costs two ranks what the copy of a half does. The same on all
  // ranks.
  bool gathers_in_place(std::int64_t numel, const at::TensorOptions& options) const;
  // A flat tensor [numel], which all_gather, all_gather_parts and reduce_scatter_parts need not copy to send where
  // ranks share memory: it must not be written once it was their input. An ordinary tensor elsewhere. Not collective.
  at::Tensor exchange_buffer(std::int64_t numel, const at::TensorOptions& options) const;

  // Replaces the time limit of the collectives that follow.
  void set_timeout(std::chrono::milliseconds timeout);
  // Its collectives run on a thread of their own, beside those of the other groups: for the record of collectives,
  // which then does not take one that waits there for a wait of the thread that trains.
  void set_runs_beside();

 private:
  // `tensor` says on which device, and of what dtype.
  template <typename Start>
  Work start(const char* what, const at::Tensor& tensor, std::int64_t input_numel, std::int64_t output_numel,
             Start&& start);
  c10d::Backend& backend(const at::Tensor& tensor) const;
  CollectivesInMemory* memory_backend(at::Device device) const;  // null where ranks share no memory
  bool is_fake() const { return size() > 1 && !cpu_ && !accelerator_; }
  std::string name_;
  std::vector<int> ranks_;
  int rank_;
  int record_ = -1;  // the group's number in flight_recorder(); -1: it sends nothing
  c10::intrusive_ptr<c10d::Backend> cpu_;
  c10::intrusive_ptr<c10d::Backend> accelerator_;
};

}  // namespace titan::dist
