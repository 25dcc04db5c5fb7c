#include "base/limits/control_group.h"

#include <gmock/gmock.h>

#include <sstream>

namespace titan {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> folders(const std::string& controller, const std::string& groups) {
  std::istringstream text(groups);
  return control_group_folders(controller, text);
}

TEST(ControlGroup, HasAllGroupsAbove) {
  EXPECT_THAT(folders("memory", "0::/slurm/job_7/step_0\n"),
              ElementsAre("/sys/fs/cgroup/slurm/job_7/step_0", "/sys/fs/cgroup/slurm/job_7", "/sys/fs/cgroup/slurm",
                          "/sys/fs/cgroup"));
  EXPECT_THAT(folders("memory", "0::/\n"), ElementsAre("/sys/fs/cgroup"));
}

TEST(ControlGroup, OfVersion1IsThatOfTheController) {
  const std::string groups = "7:cpu,cpuacct:/a\n6:memory:/b\n1:name=systemd:/c\nnot a group\n";
  EXPECT_THAT(folders("cpu", groups), ElementsAre("/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/cpu,cpuacct"));
  EXPECT_THAT(folders("memory", groups), ElementsAre("/sys/fs/cgroup/memory/b", "/sys/fs/cgroup/memory"));
}

}  // namespace
}  // namespace titan
