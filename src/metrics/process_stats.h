// What the operating system knows about this process.
#pragma once

#include <cstdint>
#include <functional>

namespace titan::metrics {

struct MemoryUsage {
  std::uint64_t peak_bytes = 0;
  std::uint64_t capacity_bytes = 0;
};

// Where the memory column comes from: process_memory(), or for a device a function of its own that gives the peak of
// the bytes reserved since it was last called.
using MemoryProbe = std::function<MemoryUsage()>;

// The peak resident set since the process started, and the physical memory of the machine.
MemoryUsage process_memory();

// Time since the kernel made this process, not since main(): loading libraries counts. The kernel keeps the start in
// clock ticks, so the result is up to 10 ms too long. Throws std::runtime_error where /proc is not mounted.
double seconds_since_process_start();

}  // namespace titan::metrics
