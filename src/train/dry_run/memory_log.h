// Records what a run on the meta device (nn/ops/meta_run.h) allocates. Its allocator gives out no memory; it logs when
// each allocation is made and freed, its use, and the part of the run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "trace/operation.h"

namespace titan::train {

// Events are allocations and frees. Their numbers serve as time.
struct Allocation {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  std::int64_t bytes = 0;
  std::size_t born = 0;  // event
  std::size_t died = kNever;
  MemoryUse use = MemoryUse::kOther;
  int stream = 0;

  bool lives_after(std::size_t event) const { return born <= event && event < died; }
};

class MemoryLog {
 public:
  // Returns the log of the process. The first call replaces the allocator of meta tensors for good, since tensors may
  // outlive any scope.
  static MemoryLog& instance();

  // Records from start() to stop(); meanwhile only one thread may make meta tensors. Each call clears the log: live
  // tensors stay valid but are not in it.
  void start();
  void stop();

  // Begins a part of the run: "the forward of layers.3".
  void enter(std::string part) { parts_.push_back({now(), std::move(part)}); }
  const std::string& part_at(std::size_t event) const;

  // The number of the next event.
  std::size_t now() const { return events_.size(); }
  // Returns all allocations in the order in which they were made.
  const std::vector<Allocation>& allocations() const { return allocations_; }
  // Returns the allocation that an event makes (if its `born` equals the event) or frees.
  std::size_t allocation_of(std::size_t event) const { return events_[event]; }

  static constexpr std::size_t kNone = Allocation::kNever;
  // Returns the allocation that holds a tensor's elements; kNone if it is not in the log.
  std::size_t find(const at::Tensor& tensor) const;

 private:
  class Allocator;
  struct Part {
    std::size_t begin;
    std::string name;
  };

  MemoryLog() = default;
  void forget();

  std::vector<Allocation> allocations_;
  std::vector<std::size_t> events_;
  std::vector<Part> parts_;
  bool writes_ = false;
  std::uint64_t generation_ = 0;  // counts start() and stop()
};

}  // namespace titan::train
