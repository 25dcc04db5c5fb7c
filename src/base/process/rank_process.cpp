#include "base/process/rank_process.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace titan {
namespace {

struct Stat {
  char state = 0;
  std::uint64_t start_time = 0;
};

// proc(5): the name in parentheses may contain anything; the state follows it, 19 fields before the start time.
std::optional<Stat> read_stat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  Stat stat;
  fields >> stat.state;
  std::string skipped;
  for (int i = 0; i < 18; ++i) fields >> skipped;
  if (!(fields >> stat.start_time)) return std::nullopt;
  return stat;
}

const std::string& this_machine() {
  static const std::string name = [] {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    std::error_code error;
    const auto processes = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
    return boot.empty() || error ? std::string() : boot + "/" + processes;
  }();
  return name;
}

}  // namespace

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "";
}

RankProcess process_of(pid_t pid) {
  const auto stat = read_stat(pid);
  return {this_machine(), pid, stat ? stat->start_time : 0};
}

RankProcess own_process() { return process_of(getpid()); }

Life life_of(const RankProcess& process) noexcept {
  try {
    if (process.machine.empty() || process.start_time == 0 || process.machine != this_machine()) return Life::kUnknown;
    const auto stat = read_stat(process.pid);
    if (!stat || stat->start_time != process.start_time) return Life::kEnded;
    if (stat->state == 'Z' || stat->state == 'X') return Life::kEnded;
    return stat->state == 'T' || stat->state == 't' ? Life::kStopped : Life::kRuns;
  } catch (const std::exception&) {
    return Life::kUnknown;
  }
}

std::string to_text(const RankProcess& process) {
  return std::to_string(process.pid) + " " + std::to_string(process.start_time) + " " + process.machine;
}

RankProcess rank_process_from_text(const std::string& text) {
  std::istringstream fields(text);
  RankProcess process;
  fields >> process.pid >> process.start_time >> process.machine;
  return fields ? process : RankProcess{};
}

}  // namespace titan
