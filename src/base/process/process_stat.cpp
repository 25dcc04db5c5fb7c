#include "base/process/process_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <string>

namespace titan {
namespace {

ProcessStat stat_for(int error) { return {.state = error == ENOENT || error == ESRCH ? 'X' : '\0'}; }

// proc(5): the name in parentheses may contain anything; the state follows it, 19 fields before the start time.
ProcessStat parse_stat(const std::string& line) {
  const auto end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields(line.substr(end_of_name + 1));
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int i = 0; i < 18; ++i) fields >> skipped;
  return fields >> stat.start_time ? stat : ProcessStat{};
}

}  // namespace

ProcessStat read_process_stat(pid_t pid) {
  const int fd = ::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return stat_for(errno);
  std::array<char, 1024> line{};  // one read gives all of it
  const ssize_t size = ::read(fd, line.data(), line.size());
  const int error = errno;
  ::close(fd);
  return size < 0 ? stat_for(error) : parse_stat({line.data(), static_cast<std::size_t>(size)});
}

}  // namespace titan
