#include "base/process/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/limits/control_group.h"
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
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::int64_t value = 0; file >> name >> value;) {
    if (name == "MemAvailable:") return value * 1024;
    std::getline(file, unit);
  }
  return kUnlimited;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  std::int64_t value = 0;
  std::ifstream file(path);
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is not a limit
}

// cgroups(7), version 2: the limits of all parent groups apply too.
std::int64_t control_group_bytes() {
  std::int64_t least = kUnlimited;
  for (const std::string& folder : control_group_folders("memory")) {
    const auto limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
    if (limit && used) least = std::min(least, std::max<std::int64_t>(0, *limit - *used));
  }
  return least;
}

}  // namespace

std::string too_many_ranks(std::int64_t ranks) {
  const std::int64_t cores = own_processors().quota;
  const std::int64_t free = free_memory_bytes();
  const std::int64_t room = std::max<std::int64_t>(1, std::min(kRanksPerCore * cores, free / kRankBytes));
  if (ranks <= room) return {};
  return "this machine has " + std::to_string(cores) + " cores and " + format_bytes(static_cast<double>(free)) +
         " of free memory, enough for " + std::to_string(room) + " ranks (" + std::to_string(kRanksPerCore) +
         " a core, " + format_bytes(static_cast<double>(kRankBytes)) + " each before the first tensor)";
}

std::int64_t free_memory_bytes() { return std::min(available_bytes(), control_group_bytes()); }

}  // namespace titan
