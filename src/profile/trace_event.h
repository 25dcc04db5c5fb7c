// What a profile recorded, without the profiler's types.
#pragma once

#include <cstdint>
#include <string>

namespace titan::profile {

struct TraceEvent {
  enum class Kind {
    kRange,     // a NamedRange, or a collective of a c10d backend
    kOperator,  // of ATen or autograd, on the host
    kKernel,    // on a device, copies included
  };
  Kind kind = Kind::kRange;
  std::string name = {};
  std::uint64_t thread = 0;  // of the host; of a kernel nothing
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  // Began on this thread and ended on another: no other event of the thread lies inside it, or outside.
  bool is_async = false;
  // Of an operator: its own number. Of a kernel: that of the operator that launched it; 0 where nobody knows.
  std::uint64_t correlation = 0;
};

}  // namespace titan::profile
