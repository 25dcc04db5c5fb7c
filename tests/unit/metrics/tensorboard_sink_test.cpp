// Tests the content of the files. The integration case `tensorboard` tests that TensorBoard reads them.
#include "metrics/tensorboard/tensorboard_sink.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/fs.h"
#include "config/job_config.h"
#include "metrics/make_sinks.h"
#include "tests/support/memory_folder.h"
#include "tests/support/temporary_folder.h"

namespace titan::metrics::tensorboard {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Histogram, BucketsHoldEveryValue) {
  const double values[] = {1, 2, 2, 4};
  Histogram made;
  fill_histogram(values, made);
  EXPECT_EQ(made.min, 1);
  EXPECT_EQ(made.max, 4);
  EXPECT_EQ(made.count, 4);
  EXPECT_EQ(made.sum, 9);
  EXPECT_EQ(made.sum_of_squares, 25);
  ASSERT_EQ(made.bucket_limits.size(), 30u);
  ASSERT_EQ(made.counts.size(), 30u);
  EXPECT_EQ(made.bucket_limits.back(), 4);
  EXPECT_EQ(made.counts.front(), 1);
  EXPECT_EQ(made.counts.back(), 1);
  EXPECT_EQ(made.counts[9], 2);  // (1.9, 2]
}

TEST(Histogram, OfOneValueIsOneBucket) {
  const double values[] = {2.5, 2.5};
  Histogram made;
  fill_histogram(values, made);
  EXPECT_THAT(made.bucket_limits, ElementsAre(2.5));
  EXPECT_THAT(made.counts, ElementsAre(2.0));
}

class TensorBoardFolder : public ::testing::Test {
 protected:
  std::vector<fs::path> files(const fs::path& folder) const {
    std::vector<fs::path> found;
    if (fs::exists(folder))
      for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
    return found;
  }

  const test::TemporaryFolder temporary_{test::memory_folder()};
  const std::filesystem::path& folder_ = temporary_.path();
};

// A run that begins anew removes its own earlier events.
TEST_F(TensorBoardFolder, RunsThatShareAFolderKeepEachOthersFiles) {
  const auto begin = [&](const std::string& name) {
    config::JobConfig config;
    config.job.dump_folder = folder_ / name;
    config.metrics.enable_tensorboard = true;
    config.metrics.save_tb_folder = folder_ / "shared";
    for (const auto& sink : make_sinks(config, 0, {.rank = 0, .world_size = 1})) sink->on_step(1);
  };
  begin("a");
  const auto of_a = files(folder_ / "shared");
  ASSERT_EQ(of_a.size(), 1u);
  begin("b");
  EXPECT_EQ(files(folder_ / "shared").size(), 2u);
  EXPECT_TRUE(fs::exists(of_a.front()));
  begin("a");
  EXPECT_EQ(files(folder_ / "shared").size(), 2u) << "the first file of run a is removed";
}

TEST_F(TensorBoardFolder, NothingBeforeTheFirstStepEnds) {
  TensorBoardSink sink({.folder = folder_ / "tb", .configuration = "[job]\n"});
  EXPECT_TRUE(files(folder_ / "tb").empty());
  sink.on_step(1);
  ASSERT_EQ(files(folder_ / "tb").size(), 1u);
  EXPECT_THAT(read_file(files(folder_ / "tb")[0]), HasSubstr("```toml\n[job]\n```"));
}

TEST_F(TensorBoardFolder, WhatIsNotKnownOrHasNoTagIsLeftOut) {
  TensorBoardSink sink({.folder = folder_});
  sink.log({.step = 1, .loss = 2.0});
  const std::string content = read_file(files(folder_)[0]);
  EXPECT_THAT(content, HasSubstr("loss_metrics/global_avg_loss"));
  EXPECT_THAT(content, Not(HasSubstr("mfu")));
  EXPECT_THAT(content, Not(HasSubstr("titan/")));
  EXPECT_THAT(content, Not(HasSubstr("unix_time")));
}

TEST_F(TensorBoardFolder, AStartCutsItsOwnAndAbandonedFolders) {
  for (const char* name : {"rank_0", "rank_1", "rank_2"}) {
    TensorBoardSink sink({.folder = folder_ / name});
    for (const int step : {1, 2, 3}) sink.log({.step = step});
  }
  const auto size = [&](const char* name) { return fs::file_size(files(folder_ / name).at(0)); };
  const auto before = size("rank_1");
  TensorBoardSink sink({.folder = folder_ / "rank_0", .finished_steps = 2, .abandoned = {folder_ / "rank_2"}});
  sink.on_step(3);
  EXPECT_EQ(files(folder_ / "rank_0").size(), 2u);
  EXPECT_EQ(size("rank_1"), before) << "that rank looks after it";
  EXPECT_LT(size("rank_2"), before);
}

TEST_F(TensorBoardFolder, GoesBackWithTheRun) {
  TensorBoardSink sink({.folder = folder_});
  sink.log({.step = 1});
  const fs::path first = files(folder_).at(0);
  const auto size = fs::file_size(first);
  for (const int step : {2, 3}) sink.log({.step = step});
  sink.roll_back(1);
  EXPECT_EQ(files(folder_).size(), 2u);
  EXPECT_EQ(fs::file_size(first), size);
  sink.log({.step = 2});
  EXPECT_EQ(fs::file_size(first), size) << "the next rows go to the new file";
  sink.roll_back(0);
  ASSERT_EQ(files(folder_).size(), 1u);
  EXPECT_LT(fs::file_size(files(folder_)[0]), size) << "no row is left";
}

TEST_F(TensorBoardFolder, NormsThatAreNotFiniteAreNotInTheHistogram) {
  TensorBoardSink sink({.folder = folder_});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  sink.log({.step = 1});
  sink.log_gradient_norms(1, std::array{nan, nan});
  EXPECT_THAT(read_file(files(folder_)[0]), Not(HasSubstr("grad_norm_by_layer")));
  sink.log_gradient_norms(1, std::array{nan, 2.0});
  EXPECT_THAT(read_file(files(folder_)[0]), HasSubstr("grad_norm_by_layer"));
}

}  // namespace
}  // namespace titan::metrics::tensorboard
