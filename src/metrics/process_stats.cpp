#include "metrics/process_stats.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace titan::metrics {
namespace {

// A file of /proc, on the stack: a row is made of these, and asks the allocator for nothing.
class ProcFile {
 public:
  explicit ProcFile(const char* path) {
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    for (ssize_t n; size_ < bytes_.size() && (n = ::read(fd, bytes_.data() + size_, bytes_.size() - size_)) > 0;)
      size_ += static_cast<std::size_t>(n);
    ::close(fd);
  }
  std::string_view text() const { return {bytes_.data(), size_}; }

 private:
  std::array<char, 8192> bytes_;
  std::size_t size_ = 0;
};

// The number that `text` begins with, behind blanks; nothing where it does not.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// VmHWM, because ru_maxrss of a process started by a larger one begins at the size of its parent.
std::uint64_t peak_resident_bytes() {
  constexpr std::string_view kName = "\nVmHWM:";
  const ProcFile status("/proc/self/status");
  if (const auto at = status.text().find(kName); at != std::string_view::npos)
    if (const auto kib = leading_number(status.text().substr(at + kName.size()))) return *kib * 1024;
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
  constexpr int kFieldAfterName = 3, kStartTimeField = 22;  // proc(5)
  const ProcFile stat("/proc/self/stat");
  const auto name_end = stat.text().rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string_view::npos) throw std::runtime_error("cannot read /proc/self/stat; is /proc mounted?");
  std::size_t at = name_end + 1;  // of the blank before a field
  for (int field = kFieldAfterName; field < kStartTimeField && at != std::string_view::npos; ++field)
    at = stat.text().find(' ', at + 1);
  const auto start_ticks = at == std::string_view::npos ? std::nullopt : leading_number(stat.text().substr(at));
  if (!start_ticks) throw std::runtime_error("/proc/self/stat has no start time: " + std::string(stat.text()));
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         static_cast<double>(*start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double unix_time_of_process_start() { return unix_now() - seconds_since_process_start(); }

}  // namespace titan::metrics
