// Computes where the time of profiled steps went, from the events of their traces.
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
  kMessages,  // between two ranks
  kOptimizer,
  kData,
  kCheckpoint,
  kValidation,
  kLog,
  kDeviceIdle,  // with a GPU: no kernel ran
  kOther,
};
inline constexpr std::size_t kNumParts = 13;

// Returns the part that a range, collective or kernel of that name belongs to, or nullopt if the name does not tell.
std::optional<Part> part_of(std::string_view name);

// Assigns every moment of a step to one part. Without kernels it is the innermost range of the training thread, or a
// collective that an autograd thread started; validation, checkpoints and the log keep everything inside them. With
// kernels it is the part whose operator launched the running kernel, or a collective if nothing else was computed.
class StepTimes {
 public:
  // Adds the events of a trace. Its steps are the ranges "ProfilerStep#..."; time outside them counts for no part.
  void add(const std::vector<TraceEvent>& events);

  std::int64_t steps() const { return steps_; }
  std::int64_t total_ns() const;
  std::int64_t ns(Part part) const { return parts_[static_cast<std::size_t>(part)]; }
  // Returns how long a collective of that part was under way; during ns(part) of it nothing else ran.
  std::int64_t under_way_ns(Part part) const { return under_way_[static_cast<std::size_t>(part)]; }

  struct Operator {
    std::string name;
    std::int64_t calls = 0;
    std::int64_t self_ns = 0;  // without the operators inside it
  };
  // Returns kernels if there are any, otherwise operators, sorted by self time, the longest first.
  std::vector<Operator> operators() const;

  // Returns text for people: a line about the steps, one per part that took time, and one with the `top` operators.
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
