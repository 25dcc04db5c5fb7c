#include "base/run_layout.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace titan::layout {
namespace {

namespace fs = std::filesystem;

class RunLayout : public testing::Test {
 protected:
  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST(RunLayoutNames, StepsAndBack) {
  EXPECT_EQ(step_name(1000), "step-1000");
  EXPECT_EQ(step_of("step-1000"), 1000);
  EXPECT_EQ(step_of("step-0"), 0);
  EXPECT_EQ(step_of("step-7.tmp", ".tmp"), 7);
  for (const char* name :
       {"", "step-", "step-7.tmp", "step-07", "step--7", "step-+7", "step-7x", "Step-7", "step-99999999999"})
    EXPECT_EQ(step_of(name), std::nullopt) << name;
  EXPECT_EQ(step_of("step-.tmp", ".tmp"), std::nullopt);
  EXPECT_EQ(step_of("step-7", ".tmp"), std::nullopt);
}

TEST_F(RunLayout, ASaveIsCompleteInAnyFormat) {
  for (const char* last : {".metadata", "model.safetensors.index.json", "model.pt"}) {
    const fs::path step = folder_ / last / "step-4";
    EXPECT_FALSE(is_complete_save(step)) << last;
    fs::create_directories(step);
    std::ofstream(step / "__0_0.distcp") << "numbers";
    EXPECT_FALSE(is_complete_save(step)) << last;
    std::ofstream(step / last) << "end";
    EXPECT_TRUE(is_complete_save(step)) << last;
  }
}

TEST_F(RunLayout, TheConfigurationLiesTwoFoldersAboveAStep) {
  fs::create_directories(folder_ / "checkpoint" / "step-4");
  const std::string expected = fs::weakly_canonical(folder_) / "config.toml";
  EXPECT_EQ(config_of_step(folder_ / "checkpoint" / "step-4").string(), expected);
  EXPECT_EQ(config_of_step(folder_ / "checkpoint" / "." / "step-4").string(), expected);
}

}  // namespace
}  // namespace titan::layout
