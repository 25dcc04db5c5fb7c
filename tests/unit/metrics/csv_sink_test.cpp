#include "metrics/history/csv_sink.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "base/fs.h"
#include "base/text.h"
#include "tests/support/temporary_folder.h"

namespace titan::metrics {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::StartsWith;

class Csv : public ::testing::Test {
 protected:
  std::vector<std::string> lines(const char* name = "metrics.csv") const {
    auto found = split(read_file(folder_ / name), '\n');
    EXPECT_EQ(found.back(), "") << "the last row has no newline";
    found.pop_back();
    return found;
  }
  std::vector<std::string> steps() const {
    std::vector<std::string> out;
    for (const auto& line : lines()) out.push_back(split(line, ',').front());
    return out;
  }
  void log_steps(std::int64_t finished, std::initializer_list<int> step_numbers) const {
    CsvSink sink(folder_, finished);
    sink.on_step(finished + 1);
    for (const int step : step_numbers) sink.log({.step = step});
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(Csv, ColumnsAreAlwaysTheSame) {
  StepMetrics m;
  m.step = 1;
  m.loss = 1.0 / 3;
  m.max_loss = std::nan("");
  m.grad_norm = -std::numeric_limits<double>::infinity();
  {
    CsvSink sink(folder_, 0);
    sink.log(m);
    m.step = 2;
    m.mfu = 12.5;
    m.time_spent = TimeSpent{{3, 1}};
    sink.log(m);
  }
  const auto rows = lines();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows[0], StartsWith("step,loss,max_loss,grad_norm,lr,tokens_seen,"));
  EXPECT_THAT(rows[1], StartsWith("1,0.3333333333333333,NaN,-Infinity,0,0,0,0,,0,"));
  EXPECT_THAT(rows[2], StartsWith("2,0.3333333333333333,NaN,-Infinity,0,0,0,0,12.5,0,"));
  EXPECT_THAT(rows[2], ::testing::EndsWith(",75,3,1,0,0,0,0,0,0,0,0,"));
  const auto num_cells = split(rows[0], ',').size();
  for (const auto& row : rows) EXPECT_EQ(split(row, ',').size(), num_cells);
  EXPECT_FALSE(fs::exists(folder_ / "validation.csv"));  // created with its first row
}

TEST_F(Csv, ValidationHasATableOfItsOwn) {
  CsvSink(folder_, 0).log_validation({.step = 5, .loss = 2.5, .perplexity = 12.25, .best_step = 5});
  EXPECT_THAT(lines("validation.csv"), ElementsAre(StartsWith("step,loss,perplexity,tokens,seconds,is_best,"),
                                                   StartsWith("5,2.5,12.25,0,0,true,5,")));
}

TEST_F(Csv, GoesBackWithTheRun) {
  CsvSink sink(folder_, 0);
  for (const int step : {1, 10, 20}) sink.log({.step = step});
  sink.log_validation({.step = 20});
  sink.roll_back(15);
  EXPECT_THAT(steps(), ElementsAre("step", "1", "10"));
  EXPECT_EQ(lines("validation.csv").size(), 1u);
  sink.log({.step = 20});
  EXPECT_THAT(steps(), ElementsAre("step", "1", "10", "20"));
}

TEST_F(Csv, ResumeDropsTheRowsThatRunAgain) {
  log_steps(0, {1, 10, 20, 30});
  log_steps(20, {30, 40});
  EXPECT_THAT(steps(), ElementsAre("step", "1", "10", "20", "30", "40"));
  log_steps(15, {20});
  EXPECT_THAT(steps(), ElementsAre("step", "1", "10", "20"));
  log_steps(0, {1});
  EXPECT_THAT(steps(), ElementsAre("step", "1"));
}

// A number that lost its last digits still looks like a number.
TEST_F(Csv, ATornRowIsDropped) {
  log_steps(0, {1, 2});
  const std::string whole = read_file(folder_ / "metrics.csv");
  for (const std::size_t cut : {1, 5}) {
    std::ofstream(folder_ / "metrics.csv") << whole.substr(0, whole.size() - cut);
    log_steps(2, {3});
    EXPECT_THAT(steps(), ElementsAre("step", "1", "3")) << cut;
  }
}

TEST_F(Csv, ATableOfOtherColumnsIsPutAside) {
  const std::string other = "step,loss\n1,2.5\n";
  std::ofstream(folder_ / "metrics.csv") << other;
  log_steps(1, {2});
  EXPECT_THAT(steps(), ElementsAre("step", "2"));
  EXPECT_EQ(read_file(folder_ / "metrics.csv.until-step-1"), other);
  std::ofstream(folder_ / "metrics.csv") << other;
  log_steps(0, {1});  // a fresh start keeps none of it
  EXPECT_THAT(steps(), ElementsAre("step", "1"));
}

TEST_F(Csv, AStartWithoutAStepTouchesNothing) {
  std::ofstream(folder_ / "metrics.csv") << "something else";
  const CsvSink sink(folder_, 0);
  EXPECT_EQ(read_file(folder_ / "metrics.csv"), "something else");
}

}  // namespace
}  // namespace titan::metrics
