// Every file of configs/ loads without an error or a warning.
#include <gmock/gmock.h>

#include <filesystem>

#include "support.h"

namespace titan::config {
namespace {

TEST(Configs, EveryFileLoads) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TITAN_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml" || entry.path().parent_path().filename() == "sweeps") continue;
    ++num_files;
    const std::string path = entry.path().string();
    LoadedConfig loaded;
    EXPECT_EQ(error_of([&] { loaded = load_job_config(parse({"--config", path})); }), "no error");
    EXPECT_THAT(loaded.warnings, ::testing::IsEmpty()) << path;
    EXPECT_NE(loaded.config.job.description, JobConfig{}.job.description) << path;
  }
  EXPECT_GE(num_files, 4);
}

}  // namespace
}  // namespace titan::config
