#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/runs/report/runs_report.h"
#include "run_files.h"

namespace titan::runs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const auto begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(ThinnedWithPeaks, KeepsPeaksEndsAndWhatIsNoNumber) {
  Curve curve;
  for (int i = 0; i < 10000; ++i) curve.steps.push_back(i), curve.values.push_back(std::sin(i * 0.01));
  curve.values[4321] = 50;
  curve.values[5678] = -50;
  curve.values[7000] = std::numeric_limits<double>::quiet_NaN();
  const Curve thin = thinned_with_peaks(curve, 100);
  EXPECT_LE(thin.steps.size(), 103u);
  EXPECT_TRUE(std::ranges::is_sorted(thin.steps));
  EXPECT_EQ(thin.steps.front(), 0);
  EXPECT_EQ(thin.steps.back(), 9999);
  for (const int step : {4321, 5678, 7000}) EXPECT_EQ(std::ranges::count(thin.steps, step), 1) << step;
  EXPECT_EQ(thinned_with_peaks(curve, 10000).steps.size(), 10000u);
}

TEST(Report, HasTheCurvesEventsAndNumbersOfARun) {
  const TemporaryFolder folder;
  folder.write("run/metrics.jsonl",
               "{\"step\":1,\"loss\":8.5,\"tokens_seen\":64,\"unix_time\":1000,\"goodput_percent\":91.5}\n"
               "{\"step\":2,\"loss\":\"NaN\",\"tokens_seen\":128,\"unix_time\":4600,\"goodput_percent\":92}\n");
  folder.write("run/validation.jsonl", "{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":7}\n");
  folder.write("run/events.jsonl",
               "{\"step\":0,\"unix_time\":999,\"event\":\"start\"}\n{\"step\":2,\"event\":\"diverged\"}\n");
  folder.write("run/config.toml", "[training]\nsteps = 50\n");
  const std::string path = folder.path() / "run";
  const std::vector<std::string> words = {path};
  const auto data = data_of(report_page(find_runs(words), "now"));
  const auto& run = data["runs"][0];
  EXPECT_EQ(run["name"], "run");
  EXPECT_EQ(run["curves"]["loss"], (nlohmann::json{{1, 2}, {8.5, nullptr}}));
  EXPECT_EQ(run["curves"]["validation.loss"][1], (nlohmann::json{9, 7}));
  EXPECT_EQ(run["summary"]["state"], "diverged");
  EXPECT_EQ(run["summary"]["of_steps"], 50);
  EXPECT_EQ(run["summary"]["best_validation_step"], 2);
  EXPECT_EQ(run["summary"]["hours"], 1);
  EXPECT_EQ(run["summary"]["goodput_percent"], 92);
  EXPECT_EQ(run["events"][1]["name"], "diverged");
  EXPECT_EQ(data["config"]["of"], "defaults");
  EXPECT_EQ(data["config"]["rows"][0]["key"], "training.steps");
}

TEST(Report, HasTheLastAndTheBestOfEachScore) {
  const TemporaryFolder folder;
  folder.write("run/metrics.jsonl", "{\"step\":1,\"loss\":8.5}\n");
  const auto row = [](int step, const std::string& acc, double perplexity) {
    return "{\"step\":" + std::to_string(step) + ",\"arc/easy/acc\":" + acc +
           ",\"arc/easy/acc_stderr\":0.1,\"arc/easy/items\":4,\"wiki/word_perplexity\":" + std::to_string(perplexity) +
           ",\"seconds\":2}\n";
  };
  folder.write("run/evaluation.jsonl", row(10, "0.25", 30) + row(20, "0.5", 20) + row(30, "\"NaN\"", 10) +
                                           row(40, "0.5", 25) + row(50, "0.375", 15));
  folder.write("none/metrics.jsonl", "{\"step\":1,\"loss\":8.5}\n");
  const std::vector<std::string> words = {folder.path() / "run", folder.path() / "none"};
  const auto data = data_of(report_page(find_runs(words), "now"));
  EXPECT_EQ(data["runs"][0]["summary"]["scores"],
            (nlohmann::json{{{"name", "arc/easy/acc"}, {"last", 0.375}, {"best", 0.5}, {"best_step", 20}},
                            {{"name", "wiki/word_perplexity"}, {"last", 15}, {"best", 10}, {"best_step", 30}}}));
  EXPECT_FALSE(data["runs"][1]["summary"].contains("scores"));
}

TEST(Report, OfARunWithoutItsConfigurationSaysSo) {
  const TemporaryFolder folder;
  folder.write("a<!-- b/metrics.jsonl", "{\"step\":1,\"loss\":8.5}\n");
  const std::vector<std::string> words = {folder.path()};
  const std::string page = report_page(find_runs(words), "now");
  const auto data = data_of(page);
  EXPECT_TRUE(data["config"].is_null());
  EXPECT_EQ(data["notes"].size(), 1u);
  EXPECT_THAT(page, Not(HasSubstr("@PAGE_")));
  EXPECT_THAT(page, HasSubstr("a\\u003c!-- b"));
}

}  // namespace
}  // namespace titan::runs
