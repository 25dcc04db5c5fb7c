#include "metrics/process_stats.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/clock.h"

namespace titan::metrics {
namespace {

// VmHWM, because ru_maxrss of a process started by a larger one begins at the size of its parent.
std::uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

MemoryUsage process_memory() {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  const std::uint64_t peak = peak_resident_bytes();
  return {.peak_bytes = peak,
          .capacity_bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)),
          .active_peak_bytes = peak};
}

double seconds_since_process_start() {
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_end = stat.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string::npos) throw std::runtime_error("cannot read /proc/self/stat; is /proc mounted?");
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  constexpr int kFieldAfterName = 3, kStartTimeField = 22;  // proc(5)
  for (int field = kFieldAfterName; field < kStartTimeField; ++field) fields >> skipped;
  double start_ticks = 0;
  if (!(fields >> start_ticks)) throw std::runtime_error("/proc/self/stat has no start time: " + stat);
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         start_ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double unix_time_of_process_start() { return unix_now() - seconds_since_process_start(); }

}  // namespace titan::metrics
