// Finds the control groups (cgroups(7)) of this process: those of a container, a batch system's step or a service.
#pragma once

#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

// Returns the folders of this process's groups that may limit `controller` ("cpu", "memory"), each followed
// by its parents. Covers version 2, and version 1 if it has the controller. Some folders may not exist.
std::vector<std::string> control_group_folders(std::string_view controller);

// Same for the groups listed in `groups`, in the format of /proc/self/cgroup.
std::vector<std::string> control_group_folders(std::string_view controller, std::istream& groups);

}  // namespace titan
