#include "base/limits/control_group.h"

#include <algorithm>
#include <fstream>

#include "base/text.h"

namespace titan {

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

}  // namespace titan
