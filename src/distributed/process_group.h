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

#include "distributed/flight/collective_ticket.h"

namespace titan::dist {

class CollectivesInMemory;

enum class ReduceOp { kSum, kMax, kMin, kAvg };  // kAvg: only in reduce_scatter_parts()

// A started collective, send or receive. wait() blocks the host on CPU; on CUDA it makes the current stream wait.
// Waiting twice is fine. Throws PeerError when a peer vanished or the group's timeout passed.
class Work {
 public:
  Work() = default;  // already complete
  Work(c10::intrusive_ptr<c10d::Work> work, const CollectiveTicket& ticket) : work_(std::move(work)), ticket_(ticket) {}
  void wait();
  // Call instead of wait(), once. After all_gather_parts, returns the inputs [n] of all ranks in rank order,
  // read-only. They hold the other ranks' memory: drop them soon. After reduce_scatter_parts, returns only the sum
  // [n].
  std::vector<at::Tensor> wait_for_parts();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  CollectiveTicket ticket_;
};

// Waits for all of these, in their order. Call it where the order does not matter.
void wait_for_all(std::vector<Work>& works);

// One message of ProcessGroup::exchange().
struct Transfer {
  at::Tensor tensor;
  int peer;  // rank in the group that the tensor goes to or comes from
};

// The output of an all-gather that the ranks of a host share.
struct GatheredInPlace {
  at::Tensor output;  // valid after wait(), read-only; its memory lives as long as all tensors that share it
  Work work;
};

// Every method below is collective unless it says otherwise: all ranks of the group must call it, in the same order,
// with the same sizes. Tensors are contiguous; they must stay alive until wait(). A group of one rank copies, and
// communicates nothing.
class ProcessGroup {
 public:
  // Makes a backend. Collective over the group.
  using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>()>;

  // `ranks`: the global ranks of the members in group order, `rank`: this process's index among them. `cpu` is null if
  // the size is 1 or the group is fake. `make_accelerator` makes the backend for tensors on an accelerator when it is
  // first needed; empty if there is none. In a fake group, collectives of meta tensors complete at once, all ranks'
  // byte strings are this one's, and tensors with data throw InternalError. `name` appears in messages ("fsdp",
  // "world").
  ProcessGroup(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> cpu,
               MakeBackend make_accelerator = {});

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // global ranks

  // Makes the backend for tensors on an accelerator now, so that the first of them does not have to wait for it. Costs
  // device memory (NCCL's buffers), so groups that only exchange host tensors do without. Does nothing without an
  // accelerator or the second time. A fake group remembers that it would have one.
  void connect_accelerator();
  // True once the group has, or if it is fake would have, a backend for tensors on an accelerator.
  bool has_accelerator() const { return is_connected_; }

  // Gathers the inputs [n] of all ranks into output [size * n], in rank order. Same dtype. `output` may hold `input`
  // at this rank's place.
  [[nodiscard]] Work all_gather(at::Tensor output, at::Tensor input);
  // All-gather for tensors in memory that the ranks share. Copies nothing; Work::wait_for_parts() returns the result.
  [[nodiscard]] Work all_gather_parts(at::Tensor input);
  // All-gather for ranks that share memory, into one output [numel] that all ranks share. `write` gets the output and
  // writes this rank's parts (`input_numel` elements, at places that all ranks agree on): at once if no rank needs
  // the previous content, otherwise in wait(). All ranks must wait for these and free their outputs in the same
  // order, relative to all their other waits: a rank that has not written yet blocks the others.
  [[nodiscard]] GatheredInPlace all_gather_in_place(std::int64_t numel, const at::TensorOptions& options,
                                                    std::int64_t input_numel,
                                                    std::function<void(const at::Tensor& output)> write);
  // Reduces the inputs [size * n] of all ranks. output [n] gets this rank's n elements.
  [[nodiscard]] Work reduce_scatter(at::Tensor output, at::Tensor input, ReduceOp op);
  // Reduce-scatter for ranks that share memory, in which a rank reads only the parts that it needs. `own` [n] has
  // this rank's elements, `others` [(size - 1) * n] the other ranks', in rank order, preferably in an
  // exchange_buffer. Each may have a narrower dtype than `dtype`, the dtype of the sum, which must hold its values
  // exactly. Work::wait_for_parts() returns the sum, in `own` if that has `dtype`. `op` is kSum, or kAvg: the same
  // sum, divided by size() while it is in the cache.
  [[nodiscard]] Work reduce_scatter_parts(at::Tensor own, at::Tensor others, at::ScalarType dtype, ReduceOp op);
  // Both work in place.
  [[nodiscard]] Work all_reduce(at::Tensor tensor, ReduceOp op);
  [[nodiscard]] Work broadcast(at::Tensor tensor, int root);
  void barrier();

  // Messages from one rank of the group to another; only these two call. The n-th message that a rank sends to a peer
  // arrives in the peer's n-th receive from it: there are no tags. Both ends have the same number of bytes, of any
  // dtype and shape. Before wait(), which every Work needs, a tensor that is sent must not be written, and one that is
  // received not be used. Up to 1024 messages to a peer may be in flight; starting one does not wait for the peer. But
  // wait() of a send may last until the peer has started to receive, so start what the peer needs before. Throws
  // InternalError for this rank itself and for a rank that does not exist. Of messages with different sizes at both
  // ends, ranks that share memory throw DistError; over sockets, Gloo ends the process if the message is the longer
  // one, and does not notice the other case.
  //
  // NCCL runs the operations of a group one after the other on the device, in the order in which this rank started
  // them, and each lasts there until its peer comes to it: ranks that send to each other, or around a ring, must start
  // this in one exchange(), or their devices wait forever. NCCL's first message between two ranks connects them, for
  // which their hosts wait for each other.
  [[nodiscard]] Work send(at::Tensor tensor, int to);
  [[nodiscard]] Work receive(at::Tensor tensor, int from);
  // Starts all of these messages as one operation, so that none of them waits for another. Returns a Work for each, in
  // order, the sends first. The tensors are on one device.
  [[nodiscard]] std::vector<Work> exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives);

  // Exchanges of byte strings of any length, for plans and metadata, not for tensors.
  std::vector<std::string> all_gather_bytes(const std::string& bytes);
  std::string broadcast_bytes(const std::string& bytes, int root);

  // True if ranks read each other's tensors on `device` directly. The same on all ranks.
  bool shares_memory(at::Device device) const;
  // True if all_gather_in_place() has memory for such an output and is worth it: there are more than two ranks. It
  // saves each rank copying the others' parts. But shared memory has small pages unless the system is configured
  // otherwise (shmem_enabled), and with two ranks, computing with these costs as much as copying the other half. The
  // same on all ranks.
  bool gathers_in_place(std::int64_t numel, const at::TensorOptions& options) const;
  // Returns a flat tensor [numel]. If ranks share memory, all_gather, all_gather_parts, reduce_scatter_parts, send and
  // exchange send it without a copy, and it must not be written once it was their input, not even to receive into it.
  // Otherwise an ordinary tensor. Not collective.
  at::Tensor exchange_buffer(std::int64_t numel, const at::TensorOptions& options) const;

  // Sets the timeout of the collectives that follow.
  void set_timeout(std::chrono::milliseconds timeout);
  // Tells the flight recorder that this group's collectives run on a separate thread, beside those of other groups,
  // so that their waits do not count as the training thread's.
  void set_runs_beside();

 private:
  // `tensor` gives the device and the dtype.
  template <typename Start>
  Work start(const char* what, const at::Tensor& tensor, std::int64_t input_numel, std::int64_t output_numel,
             Start&& start);
  void check(const Transfer& transfer, const char* kind, at::Device device) const;
  CollectiveTicket record(const Transfer& transfer, bool is_send) const;
  c10d::Backend& backend(const at::Tensor& tensor);
  CollectivesInMemory* memory_backend(at::Device device) const;  // null if ranks share no memory
  bool is_fake() const { return size() > 1 && !cpu_; }
  void report_queue() const;
  std::string name_;
  std::vector<int> ranks_;
  int rank_;
  int record_ = -1;  // the group's number in flight_recorder(); -1: it sends nothing
  c10::intrusive_ptr<c10d::Backend> cpu_;
  MakeBackend make_accelerator_;
  c10::intrusive_ptr<c10d::Backend> accelerator_;  // null until connect_accelerator()
  bool is_connected_ = false;
};

}  // namespace titan::dist
