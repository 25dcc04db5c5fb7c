// A fault that tests order at a collective of one rank. In a run without TITAN_FAULT_POINT it costs one branch per
// collective.
//
//   TITAN_FAULT_POINT="rank=1 at=reduce_scatter n=12 do=hang"
//
// acts on the rank's n-th (default: the first) collective of the kind `at` (default: of any) by
//   do=kill          SIGKILL to this process
//   do=hang          sleeps until the process is ended
//   do=bad_alloc     throws what an allocation throws for which there is no memory
//   do=device_error  throws what a call to a device throws whose memory was spoilt, as every later call does then
//   do=extra         starts a collective that no other rank starts before it, as if this rank had taken another order
//   do=shape         starts one with other sizes instead
//   do=dtype         starts one with another dtype instead
#pragma once

#include <string_view>

namespace titan::dist {

// Says what is left to the caller of meet_fault().
enum class Fault { kNone, kExtra, kShape, kDtype };

// True if TITAN_FAULT_POINT is set.
extern const bool has_fault_point;

// Call before each collective if has_fault_point, with this process's rank in the job. Throws ConfigError if the
// variable cannot be read. Thread-safe.
Fault meet_fault(int rank, std::string_view kind);

}  // namespace titan::dist
