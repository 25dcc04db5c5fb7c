// State that all parameter groups of one root module share: streams on a device that has them, the order in which
// groups were used, and the all-gather and the reductions whose buffers are still in flight.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/process_group.h"

namespace titan::fsdp {

class ParamGroup;
class Reduction;

// A point in the caller's current stream; empty on CPU.
using StreamEvent = std::shared_ptr<c10::Event>;

// A side stream of a device. On CPU, which has none, run() runs at once and every other call does nothing. The same
// holds on the meta device, where a stream is only a number that marks the allocations of a planned GPU run.
class SideStream {
 public:
  SideStream() = default;
  SideStream(at::Device device, bool high_priority);

  // Runs `work` with this stream current.
  void run(const std::function<void()>& work) const;
  // Makes this stream wait for the work queued on the caller's current stream, or for one point in it.
  void waits_for_current() const;
  void waits_for(const StreamEvent& event) const;
  // Makes the caller's current stream wait for the work queued here.
  void current_waits() const;
  StreamEvent record_current() const;
  StreamEvent record() const;  // a point in this stream
  static void host_waits_for(const StreamEvent& event);
  void current_waits_for(const StreamEvent& event) const;
  bool exists() const { return stream_.has_value() || meta_stream_ != 0; }

 private:
  std::optional<c10::Stream> stream_;
  int meta_stream_ = 0;
};

// True during a backward. A forward then is the recomputation of a checkpointed module.
bool in_backward();

struct CommContext {
  void init(at::Device device);

  SideStream all_gather_stream;
  SideStream reduce_scatter_stream;
  SideStream all_reduce_stream;

  // The buffers of an all-gather belong to the all-gather stream, but the compute stream reads them: the caller has
  // just queued the copies. In forward, retire() keeps the buffers until the next one is read; the all-gather stream
  // can then wait for the first copy without waiting for later computation. In backward, release() makes the next
  // gather wait for the copy.
  void retire(std::vector<at::Tensor> buffers);
  void release(std::vector<at::Tensor> buffers);
  // Frees the buffers given to retire(). Call before the next one is read, and at the end of the root's forward, after
  // which nothing is gathered for a while.
  void release_retired();

  // The outermost sharded module whose forward is running (torch's name): the root, or a module below it that is
  // called on its own. Null between forwards, and in the recomputations of a backward.
  const void* iter_forward_root = nullptr;
  bool is_root_forward = false;  // true if it is the root, whose order of groups is always the same

  // Groups in the order of their forwards in this iteration; backward prefetches in reverse.
  std::vector<ParamGroup*> post_forward_order;

  // The group that a forward of the root probably gathers last: the last one of the previous iteration, initially
  // that of the last module.
  const ParamGroup* last_of_forward = nullptr;

  // The groups in the order of their forwards, in this iteration and in the previous one. Forward prefetches by it
  // where the host cannot run ahead of the device (CPU).
  std::vector<ParamGroup*> forward_order;
  std::vector<ParamGroup*> last_forward_order;

  // Starts a reduction beside the computation that follows. At most one reduce-scatter is in flight, and on a CPU
  // mesh also the all-reduce of the previous group; the next reduction, or end_backward(), advances them. `make`
  // copies the gradients in; with streams it is called once the previous reduction's input is free. Collective.
  void reduce(const std::function<std::shared_ptr<Reduction>()>& make);
  // Waits for every reduction: on the caller's current stream, or on the host for shards there.
  void end_backward();

 private:
  // A reduction whose output, memory of the reduce-scatter stream, the all-reduce stream uses until `end` (with
  // streams).
  struct AllReduced {
    std::shared_ptr<Reduction> reduction;
    StreamEvent end;
  };

  void reduce_here(const std::shared_ptr<Reduction>& reduction);
  void reduce_on_streams(std::shared_ptr<Reduction> reduction);
  void all_reduce_on_stream(std::shared_ptr<Reduction> reduction);
  void advance_reductions();

  std::shared_ptr<Reduction> scattering_;
  std::shared_ptr<Reduction> all_reducing_;  // CPU only
  StreamEvent scattered_;                    // with streams: the end of `scattering_`'s reduce-scatter
  std::deque<AllReduced> all_reduced_;
  std::vector<StreamEvent> to_host_;  // gradients on their way to the host
  std::vector<at::Tensor> retired_;
  StreamEvent retired_when_;
};

}  // namespace titan::fsdp
