#include "lab/sweep/plan/grid_words.h"

#include <gmock/gmock.h>

#include "lab/sweep/plan/plan.h"
#include "support.h"

namespace titan::sweep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GridWordsTest : public ::testing::Test {
 protected:
  GridWordsTest() {
    words_.config = folder_.write("job.toml", "[training]\nsteps = 3\n").string();
    words_.folder = (folder_.path() / "out").string();
  }

  std::string fault(const std::vector<std::string>& grid) {
    words_.grid = grid;
    return error_of([&] { sweep_file_of(words_); });
  }

  TemporaryFolder folder_;
  GridWords words_;
};

TEST_F(GridWordsTest, StandForASweepsFile) {
  words_.grid = {"optimizer.lr=1e-3,1e-2", "lr-scheduler.decay_type=linear,cosine", "debug.seed=1,None"};
  words_.nproc = 2;
  const SweepFile file = sweep_file_of(words_);
  EXPECT_EQ(file.path, folder_.path() / "out/sweep.toml");
  const SweepSpec spec = read_spec_text(file.text, file.path);
  EXPECT_EQ(spec.name, "job-lr-decay_type-seed");
  EXPECT_EQ(spec.base, words_.config);
  EXPECT_EQ(spec.folder, words_.folder);
  EXPECT_EQ(spec.nproc, 2);
  ASSERT_EQ(spec.grid.size(), 3U);
  EXPECT_EQ(spec.grid[0].values, (std::vector<config::FieldValue>{1e-3, 1e-2}));
  EXPECT_EQ(spec.grid[2].values[1], config::FieldValue(config::None{}));
  EXPECT_EQ(make_plan(spec).trials.size(), 8U);
}

TEST_F(GridWordsTest, TheFolderIsNamedAfterTheJobAndTheKeys) {
  words_.folder.clear();
  words_.grid = {"optimizer.lr=1,2"};
  EXPECT_EQ(sweep_file_of(words_).path, std::filesystem::current_path() / "outputs/sweeps/job-lr/sweep.toml");
}

TEST_F(GridWordsTest, AllFaultsAtOnce) {
  EXPECT_THAT(fault({"lr=1,2"}), HasSubstr("--grid lr=1,2: unknown key lr; did you mean optimizer.lr?"));
  EXPECT_THAT(fault({"optimizer.lr"}), HasSubstr("expected optimizer.lr=VALUE,VALUE,..."));
  EXPECT_THAT(
      fault({"optimizer.lr=1,x", "training.steps=0"}),
      AllOf(HasSubstr("expected a number; found \"x\""), HasSubstr("at least 1; found 0"), HasSubstr("2 errors")));
  EXPECT_THAT(fault({"optimizer.lr=1", "optimizer.lr=2"}), HasSubstr("is given before"));
  EXPECT_THAT(fault({"checkpoint.exclude_from_loading=model,optimizer"}), HasSubstr("is a list itself"));
  words_.config = "nope.toml";
  EXPECT_THAT(fault({"optimizer.lr=1,2"}), HasSubstr("--config nope.toml: no such file (looked from "));
}

}  // namespace
}  // namespace titan::sweep
