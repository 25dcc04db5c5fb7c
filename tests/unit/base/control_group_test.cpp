#include "base/limits/control_group.h"

#include <gmock/gmock.h>

#include <sstream>

#include "tests/support/temporary_folder.h"

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

// Makes a group's folder with these files.
std::string group(const test::TemporaryFolder& folder, const std::vector<std::pair<std::string, std::string>>& files) {
  for (const auto& [name, text] : files) folder.write(name, text);
  return folder.path().string();
}

TEST(GroupMemory, LeavesOutCachedFiles) {
  const test::TemporaryFolder folder;
  const auto found = memory_of_group(
      group(folder, {{"memory.max", "1000\n"},
                     {"memory.current", "900\n"},
                     {"memory.stat", "anon 300\nfile 600\nshmem 100\ninactive_file 400\nactive_file 100\nslab 50\n"}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->most, 1000);
  EXPECT_EQ(found->used, 400);
  EXPECT_EQ(found->free(), 600);
}

TEST(GroupMemory, OfVersion1CountsTheGroupsBelow) {
  const test::TemporaryFolder folder;
  const auto found = memory_of_group(group(
      folder, {{"memory.limit_in_bytes", "1000\n"},
               {"memory.usage_in_bytes", "1100\n"},
               {"memory.stat", "inactive_file 7\nactive_file 8\ntotal_inactive_file 50\ntotal_active_file 30\n"}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->used, 1020);
  EXPECT_EQ(found->free(), 0);
}

TEST(GroupMemory, MayHaveNoLimit) {
  const test::TemporaryFolder version_1, version_2, neither;
  EXPECT_FALSE(memory_of_group(
      group(version_1, {{"memory.limit_in_bytes", "9223372036854771712\n"}, {"memory.usage_in_bytes", "10\n"}})));
  EXPECT_FALSE(memory_of_group(group(version_2, {{"memory.max", "max\n"}, {"memory.current", "10\n"}})));
  EXPECT_FALSE(memory_of_group(neither.path().string()));
}

}  // namespace
}  // namespace titan
