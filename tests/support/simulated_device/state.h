// State shared by the parts of the simulated device: its clocks, its memory, and the findings.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/simulated_device/simulated_device.h"
#include "train/dry_run/caching_pools.h"

namespace titan::sim {

// The stream on which this thread queues operations; stream 0 is the compute stream.
StreamId current_stream();
StreamId exchange_current_stream(StreamId stream);

// One tensor that an operation uses.
struct Use {
  Bytes bytes;
  bool writes = false;
  std::string role;  // "self", "out of the collective"
};

class State {
 public:
  static State& get();

  // Streams and events.
  StreamId new_stream(const std::string& name);
  Clock record(StreamId stream);
  Clock record_all();
  void stream_waits(StreamId stream, const Clock& event);
  // Makes the host wait, which a step should avoid. `why` names the cause.
  void synchronize(const Clock& event, const std::string& why);

  // Queues an operation on `stream` that touches device memory. Records races.
  void queue(StreamId stream, const std::string& name, const std::vector<Use>& uses);
  // Records that the host touches device memory, or memory that a copy of the device reads or writes (pinned).
  void touch_by_host(const std::string& name, const std::vector<Use>& uses);

  // Device memory, from the pool of the current stream.
  void* allocate(std::size_t bytes);
  void free(void* pointer);
  // Pinned host memory, which the device copies asynchronously.
  void* allocate_pinned(std::size_t bytes);
  void free_pinned(void* pointer);
  bool is_pinned(const void* pointer);

  // Records what NCCL reads when the first communicator is made.
  void note_connection();

  Findings findings();
  void reset();

 private:
  State();
  struct Block {
    std::size_t id = 0;  // number of the allocation
    std::int64_t bytes = 0;
    MemoryUse use = MemoryUse::kOther;
    StreamId stream = 0;  // whose pool gives the memory out again
  };

  Address base_of(const train::CachingPools::Block& block);
  std::size_t block_at(Address address) const;
  StepFindings& current_step();
  void note_all(const Moment& moment, StreamId stream, const std::string& name, const std::vector<Use>& uses);
  void note_peak();
  void check_reusable(StreamId stream);
  void tell(std::string race);

  std::mutex mutex_;
  Order order_;
  Accesses accesses_;
  train::CachingPools pools_;
  std::map<std::pair<int, bool>, Address> bases_;  // base addresses of the pools
  std::map<Address, Block> blocks_;                // live blocks
  // Accesses to freed blocks that nothing orders before later work of the block's stream, by that stream: before and
  // after its next allocation, which might get such a block.
  std::map<StreamId, std::vector<Access>> freed_in_use_, reusable_in_use_;
  std::map<Address, std::size_t> pinned_;  // address -> bytes
  std::size_t next_id_ = 1;
  std::map<MemoryUse, std::int64_t> live_by_use_;
  Findings found_;
  std::set<std::string> told_;
};

}  // namespace titan::sim
