// What the operating system knows about this process.
#pragma once

#include <functional>

#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// Where the numbers of memory come from: process_memory(), or for a device a function of its own that gives the peaks
// since it was last called.
using MemoryProbe = std::function<MemoryUsage()>;

// The peak resident set since the process started, as both peaks, and the physical memory of the machine.
MemoryUsage process_memory();

// Time since the kernel made this process, not since main(): loading libraries counts. The kernel keeps the start in
// clock ticks, so the result is up to 10 ms too long. Throws std::runtime_error where /proc is not mounted.
double seconds_since_process_start();

// When that was, in seconds since 1970.
double unix_time_of_process_start();

}  // namespace titan::metrics
