// Where the time of profiled steps went, from the events of their traces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/trace_event.h"

namespace titan::profile {

enum class Part : int {
  kForward,
  kBackward,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kOptimizer,
  kData,
  kCheckpoint,
  kValidation,
  kLog,
  kDeviceIdle,  // with a GPU: no kernel ran
  kOther,
};
inline constexpr std::size_t kNumParts = 12;

// What the range, the collective or the kernel of that name is part of; nothing where the name says nothing.
std::optional<Part> part_of(std::string_view name);

// Every moment of a step belongs to one part. Without kernels it is what the thread that trains was in: of ranges
// inside each other the innermost, collectives that an autograd thread started included; validation, checkpoints and
// the log keep all that is inside them. With kernels it is what the device was computing, by the part whose operator
// launched the kernel, and a collective where nothing was computed beside it.
class StepTimes {
 public:
  // A trace's events; its steps are the ranges "ProfilerStep#...". What lies outside of them does not count.
  void add(const std::vector<TraceEvent>& events);

  std::int64_t steps() const { return steps_; }
  std::int64_t total_ns() const;
  std::int64_t ns(Part part) const { return parts_[static_cast<std::size_t>(part)]; }
  // How long some collective of that part was under way: ns(part) of it with nothing beside it.
  std::int64_t under_way_ns(Part part) const { return under_way_[static_cast<std::size_t>(part)]; }

  struct Operator {
    std::string name;
    std::int64_t calls = 0;
    std::int64_t self_ns = 0;  // without the operators inside it
  };
  // By self time, the longest first: of kernels where there are some, else of operators.
  std::vector<Operator> operators() const;

  // For people: a line of the steps, one for each part that took time, one of the `top` operators.
  std::vector<std::string> lines(std::size_t top) const;

 private:
  void add_operators(const std::vector<TraceEvent>& events);
  std::string part_line(Part part) const;

  std::array<std::int64_t, kNumParts> parts_{};
  std::array<std::int64_t, kNumParts> under_way_{};
  std::map<std::string, Operator> operators_;
  std::map<std::string, Operator> kernels_;
  std::int64_t steps_ = 0;
};

}  // namespace titan::profile
