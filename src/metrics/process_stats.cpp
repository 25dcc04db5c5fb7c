#include "metrics/process_stats.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "base/process/rank_process.h"

namespace titan::metrics {
namespace {

// Reads VmHWM, because ru_maxrss of a process started by a larger one begins at the size of its parent. Reads into the
// stack, because a row must not allocate.
std::uint64_t peak_resident_bytes() {
  constexpr std::string_view kName = "\nVmHWM:";
  std::array<char, 8192> bytes;
  std::size_t size = 0;
  if (const int fd = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC); fd >= 0) {
    for (ssize_t n; size < bytes.size() && (n = ::read(fd, bytes.data() + size, bytes.size() - size)) > 0;)
      size += static_cast<std::size_t>(n);
    ::close(fd);
  }
  const std::string_view status(bytes.data(), size);
  const auto name = status.find(kName);
  const auto digits = name == std::string_view::npos ? name : status.find_first_of("0123456789", name + kName.size());
  std::uint64_t kib = 0;
  if (digits != std::string_view::npos &&
      std::from_chars(status.data() + digits, status.data() + size, kib).ec == std::errc())
    return kib * 1024;
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
  static thread_local RankProcess self;  // a forked process has its own start time
  if (self.pid != ::getpid()) self = own_process();
  if (self.start_time == 0)
    throw std::runtime_error("/proc/self/stat does not say when the process began; is /proc mounted?");
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         static_cast<double>(self.start_time) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double unix_time_of_process_start() { return unix_now() - seconds_since_process_start(); }

}  // namespace titan::metrics
