#include "base/limits/control_group.h"

#include <algorithm>
#include <fstream>

#include "base/limits/system_file.h"
#include "base/text.h"

namespace titan {
namespace {

// Version 1 says a number of this size for "no limit".
constexpr std::int64_t kNoGroupLimit = std::int64_t{1} << 60;

// Returns the bytes of files that are cached for the group and the groups below it. Shared memory is not among them.
std::int64_t cached_files(const std::string& folder, bool is_version_1) {
  const std::string begin = is_version_1 ? "total_" : "", path = folder + "/memory.stat";
  return number_after(path, begin + "active_file").value_or(0) +
         number_after(path, begin + "inactive_file").value_or(0);
}

}  // namespace

std::vector<std::string> control_group_folders(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  return control_group_folders(controller, file);
}

std::vector<std::string> control_group_folders(std::string_view controller, std::istream& groups) {
  std::vector<std::string> folders;
  for (std::string line; std::getline(groups, line);) {  // "NUMBER:CONTROLLERS:PATH"; version 2 has no controllers
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && std::ranges::count(split(controllers, ','), controller) == 0) continue;
    const std::string root = "/sys/fs/cgroup" + (controllers.empty() ? "" : "/" + controllers);
    std::string path = line.substr(second + 1);
    while (path.ends_with('/')) path.pop_back();
    for (; !path.empty(); path.resize(path.rfind('/'))) folders.push_back(root + path);
    folders.push_back(root);
  }
  return folders;
}

std::optional<GroupMemory> memory_of_group(const std::string& folder) {
  const bool is_version_1 = number_in(folder + "/memory.limit_in_bytes").has_value();
  const auto most = number_in(folder + (is_version_1 ? "/memory.limit_in_bytes" : "/memory.max"));
  const auto used = number_in(folder + (is_version_1 ? "/memory.usage_in_bytes" : "/memory.current"));
  if (!most || !used || *most >= kNoGroupLimit) return std::nullopt;
  return GroupMemory{.most = *most, .used = std::max<std::int64_t>(0, *used - cached_files(folder, is_version_1))};
}

std::optional<GroupMemory> tightest_group_memory() {
  std::optional<GroupMemory> tightest;
  for (const std::string& folder : control_group_folders("memory"))
    if (const auto found = memory_of_group(folder); found && (!tightest || found->free() < tightest->free()))
      tightest = found;
  return tightest;
}

std::int64_t memory_kills_of_group() {
  for (const std::string& folder : control_group_folders("memory"))
    for (const char* name : {"/memory.events", "/memory.oom_control"})
      if (std::ifstream(folder + name)) return number_after(folder + name, "oom_kill").value_or(0);
  return 0;
}

}  // namespace titan
