// Finds the control groups (cgroups(7)) of this process: those of a container, a batch system's step or a service.
#pragma once

#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

// Returns the folders of this process's groups that may limit `controller` ("cpu", "memory"), each followed by those of
// all groups above it. They are of version 2, and of version 1 where that has the controller. Some may not be there.
std::vector<std::string> control_group_folders(std::string_view controller);

// As above, of the groups in `groups`, which is text as in /proc/self/cgroup.
std::vector<std::string> control_group_folders(std::string_view controller, std::istream& groups);

}  // namespace titan
