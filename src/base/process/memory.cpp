#include "base/process/memory.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/limits/control_group.h"
#include "base/limits/system_file.h"
#include "base/process/processors.h"
#include "base/text.h"

namespace titan {
namespace {

// Ranks on few cores mostly wait for each other; beyond this many per core they only wait.
constexpr std::int64_t kRanksPerCore = 4;
// Memory that a rank uses before its first tensor.
constexpr std::int64_t kRankBytes = 200LL << 20;
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t available_bytes() {
  const auto kibibytes = number_after("/proc/meminfo", "MemAvailable:");
  return kibibytes ? *kibibytes * 1024 : kUnlimited;
}

}  // namespace

std::string too_many_ranks(std::int64_t ranks) {
  const std::int64_t cores = own_processors().quota;
  const FreeMemory free = free_memory();
  const std::int64_t room = std::max<std::int64_t>(1, std::min(kRanksPerCore * cores, free.bytes / kRankBytes));
  if (ranks <= room) return {};
  return free.owner + " has " + std::to_string(cores) + " cores and " + format_bytes(static_cast<double>(free.bytes)) +
         " of free memory, enough for " + std::to_string(room) + " ranks (" + std::to_string(kRanksPerCore) +
         " a core, " + format_bytes(static_cast<double>(kRankBytes)) + " each before the first tensor)";
}

FreeMemory free_memory() {
  const std::int64_t available = available_bytes();
  const auto group = tightest_group_memory();
  if (!group || group->free() >= available) return {.bytes = available};
  return {
      .bytes = group->free(),
      .owner = "this container or control group (memory.max " + format_bytes(static_cast<double>(group->most)) + ")"};
}

MemoryKills memory_kills() {
  return {.of_group = memory_kills_of_group(), .of_machine = number_after("/proc/vmstat", "oom_kill").value_or(0)};
}

std::string memory_kills_since(const MemoryKills& before) {
  const MemoryKills now = memory_kills();
  const std::string begin = "the system has meanwhile killed ";
  const auto group = tightest_group_memory();
  if (group && now.of_group > before.of_group)
    return begin + std::to_string(now.of_group - before.of_group) +
           " of the processes of this container or control group, whose memory (" +
           format_bytes(static_cast<double>(group->most)) + ", memory.max) was used up";
  if (now.of_machine > before.of_machine)
    return begin + std::to_string(now.of_machine - before.of_machine) +
           " of the processes of this machine because memory was used up";
  return {};
}

}  // namespace titan
