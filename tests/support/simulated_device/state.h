// What the parts of the simulated device share: its clocks, its memory, and what was found.
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

// The stream on which this thread queues; stream 0 is the one that computes.
StreamId current_stream();
StreamId exchange_current_stream(StreamId stream);

// One tensor of an operation.
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
  // The host waits, which a step should not make it do. `why` names what asked for it.
  void synchronize(const Clock& event, const std::string& why);

  // An operation of `stream` that touches memory of the device. Tells of races.
  void queue(StreamId stream, const std::string& name, const std::vector<Use>& uses);
  // The host touches memory of the device, or memory that a copy of the device reads or writes (pinned).
  void touch_by_host(const std::string& name, const std::vector<Use>& uses);

  // Memory of the device, of the current stream's pool.
  void* allocate(std::size_t bytes);
  void free(void* pointer);
  // Memory of the host that the device copies from and to beside it.
  void* allocate_pinned(std::size_t bytes);
  void free_pinned(void* pointer);
  bool is_pinned(const void* pointer);

  // Notes what NCCL reads when the first communicator is made.
  void note_connection();

  Findings findings();
  void reset();

 private:
  struct Block {
    std::size_t id = 0;  // of this allocation
    std::int64_t bytes = 0;
    meta_run::Use use = meta_run::Use::kOther;
  };

  Address base_of(const train::CachingPools::Block& block);
  std::size_t block_at(Address address) const;
  StepFindings& current_step();
  void note_all(const Moment& moment, StreamId stream, const std::string& name, const std::vector<Use>& uses);
  void note_peak();

  std::mutex mutex_;
  Order order_;
  Accesses accesses_;
  train::CachingPools pools_{/*expandable_segments=*/false};
  std::map<std::pair<int, bool>, Address> bases_;  // of the pools
  std::map<Address, Block> blocks_;                // alive
  std::map<Address, std::size_t> pinned_;          // address -> bytes
  std::size_t next_id_ = 1;
  std::map<meta_run::Use, std::int64_t> live_by_use_;
  Findings found_;
  std::set<std::string> told_;
};

}  // namespace titan::sim
