// Facts about this process from the operating system.
#pragma once

#include <functional>

#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// Source of memory values: process_memory(), or a device's own function, which returns the peaks since its last call.
using MemoryProbe = std::function<MemoryUsage()>;

// Returns the peak resident set since the process started, as both peaks, and the physical memory of the machine.
MemoryUsage process_memory();

// Returns the time since the kernel made this process, not since main(): loading libraries counts. The kernel keeps the
// start in clock ticks, so the result is up to 10 ms too long. Throws std::runtime_error if /proc is not mounted.
double seconds_since_process_start();

// Returns the start of this process in seconds since 1970.
double unix_time_of_process_start();

}  // namespace titan::metrics
