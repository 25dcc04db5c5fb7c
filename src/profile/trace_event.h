// An event that a profile recorded, without the profiler's types.
#pragma once

#include <cstdint>
#include <string>

namespace titan::profile {

struct TraceEvent {
  enum class Kind {
    kRange,     // a NamedRange, or a collective of a c10d backend
    kOperator,  // ATen or autograd, on the host
    kKernel,    // on a device, copies included
  };
  Kind kind = Kind::kRange;
  std::string name = {};
  std::uint64_t thread = 0;  // host thread; 0 for a kernel
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  // True if it began on this thread and ended on another: it does not nest with the other events of the thread.
  bool is_async = false;
  // Number of an operator, or for a kernel that of the operator that launched it; 0 if not known.
  std::uint64_t correlation = 0;
};

}  // namespace titan::profile
