// What a run on the meta device (nn/ops/meta_run.h) allocates: an allocator for the meta device that gives out no memory, and writes
// down every allocation with when it was made and freed, what for, and in which part of the run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "nn/ops/meta_run.h"

namespace titan::train {

// Events are allocations and frees; their numbers are the clock of a log.
struct Allocation {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  std::int64_t bytes = 0;
  std::size_t born = 0;  // event
  std::size_t died = kNever;
  meta_run::Use use = meta_run::Use::kOther;
  int stream = 0;

  bool lives_after(std::size_t event) const { return born <= event && event < died; }
};

class MemoryLog {
 public:
  // The process's one, which takes the place of the usual allocator of meta tensors from the first call on: it never
  // goes, since tensors may outlive any scope.
  static MemoryLog& instance();

  // From start() to stop() it writes; one thread may make meta tensors meanwhile. Each forgets what was written:
  // tensors that are alive stay valid, and are not in the log.
  void start();
  void stop();

  // The part of the run that goes on from here: "the forward of layers.3".
  void enter(std::string part) { parts_.push_back({now(), std::move(part)}); }
  const std::string& part_at(std::size_t event) const;

  // The number of the next event.
  std::size_t now() const { return events_.size(); }
  // In the order of their birth.
  const std::vector<Allocation>& allocations() const { return allocations_; }
  // Which allocation an event is about; whether it is its birth, the allocation says.
  std::size_t allocation_of(std::size_t event) const { return events_[event]; }

  static constexpr std::size_t kNone = Allocation::kNever;
  // The allocation that holds a tensor's elements; kNone for one that is not in the log.
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
