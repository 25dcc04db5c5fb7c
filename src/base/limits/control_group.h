// Finds the control groups (cgroups(7)) of this process: those of a container, a batch system's step or a service.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

// Returns the folders of this process's groups that may limit `controller` ("cpu", "memory"), each followed
// by its parents. Covers version 2, and version 1 if it has the controller. Some folders may not exist.
std::vector<std::string> control_group_folders(std::string_view controller);

// Same for the groups listed in `groups`, in the format of /proc/self/cgroup.
std::vector<std::string> control_group_folders(std::string_view controller, std::istream& groups);

// Memory of the processes of a control group, in bytes.
struct GroupMemory {
  std::int64_t most = 0;
  std::int64_t used = 0;  // without the cached content of files, which the system drops when memory is short

  std::int64_t free() const { return most > used ? most - used : 0; }
};

// Returns the limit and the use of the group in `folder`, of version 1 or 2; nullopt if it has no limit.
std::optional<GroupMemory> memory_of_group(const std::string& folder);

// Returns the memory of this process's group, or of the one above it, that has the least room; nullopt if no group
// has a limit.
std::optional<GroupMemory> tightest_group_memory();

// Returns how many processes of this process's group, and of groups below it, the system has killed because memory was
// used up; 0 if it does not say.
std::int64_t memory_kills_of_group();

}  // namespace titan
