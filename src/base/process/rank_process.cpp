#include "base/process/rank_process.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/process/process_stat.h"

namespace titan {
namespace {

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

RankProcess process_of(pid_t pid) { return {this_machine(), pid, read_process_stat(pid).start_time}; }

RankProcess own_process() { return process_of(getpid()); }

Life life_of(const RankProcess& process) noexcept {
  try {
    if (process.machine.empty() || process.start_time == 0 || process.machine != this_machine()) return Life::kUnknown;
    const ProcessStat stat = read_process_stat(process.pid);
    if (!stat.is_known()) return Life::kUnknown;
    if (stat.has_ended() || stat.start_time != process.start_time) return Life::kEnded;
    return stat.is_stopped() ? Life::kStopped : Life::kRuns;
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
