#include "metrics/jsonl_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/fs.h"
#include "base/text.h"
#include "metrics/rows/evaluation_metrics.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace titan::metrics {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Jsonl : public ::testing::Test {
 protected:
  std::vector<Json> rows(const char* name = "metrics.jsonl") const {
    std::vector<Json> out;
    for (const auto& line : split(read_file(folder_ / name), '\n')) {
      if (!line.empty()) out.push_back(Json::parse(line));
    }
    return out;
  }
  std::vector<int> steps() const {
    std::vector<int> out;
    for (const auto& row : rows()) out.push_back(row["step"]);
    return out;
  }
  void log_steps(std::int64_t finished, std::initializer_list<int> step_numbers) const {
    JsonlSink sink(folder_, finished);
    sink.on_step(finished + 1);
    for (const int step : step_numbers) {
      StepMetrics m;
      m.step = step;
      sink.log(m);
    }
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(Jsonl, WritesTheContractsFieldsInOrder) {
  StepMetrics m;
  m.step = 1;
  m.mfu = 12.5;
  m.time_to_first_step_seconds = 3.5;
  JsonlSink sink(folder_, 0);
  sink.log(m);
  m.time_to_first_step_seconds.reset();
  m.step = 2;
  sink.log(m);
  std::vector<std::string> keys;
  const Json first = rows().at(0);
  for (const auto& [key, value] : first.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("step", "loss", "max_loss", "grad_norm", "lr", "tokens_seen", "tokens_per_second",
                                "tflops", "mfu", "memory_peak_bytes", "step_seconds", "data_seconds", "unix_time",
                                "time_to_first_step_seconds", "data_percent", "memory_peak_percent",
                                "memory_active_bytes", "memory_active_percent", "num_alloc_retries", "num_ooms"));
  EXPECT_EQ(rows().at(0)["time_to_first_step_seconds"], 3.5);
  EXPECT_FALSE(rows().at(1).contains("time_to_first_step_seconds"));
}

// Rows that are written to a removed file are lost, and those of a replaced one are another run's.
TEST_F(Jsonl, AFileThatIsNotThereAnyMoreIsAnError) {
  for (const bool is_replaced : {false, true}) {
    JsonlSink sink(folder_, 0);
    StepMetrics m;
    m.step = 1;
    sink.log(m);
    EXPECT_NO_THROW(sink.check());
    std::filesystem::remove(folder_ / "metrics.jsonl");
    if (is_replaced) std::ofstream(folder_ / "metrics.jsonl") << "theirs\n";
    const auto expected = HasSubstr(is_replaced ? "metrics.jsonl is another one now" : "metrics.jsonl is gone");
    EXPECT_THAT(test::message_of<std::system_error>([&] { sink.check(); }), expected);
    EXPECT_THAT(test::message_of<std::system_error>([&] { sink.log(m); }), expected);
    EXPECT_THAT(test::message_of<std::system_error>([&] { sink.roll_back(0); }), expected);
    if (is_replaced) {
      EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), "theirs\n");
    }
  }
}

// Rows are checked to the byte: programs read these files. A value that a row cannot have is omitted or null.
TEST_F(Jsonl, ARowOfEveryMetric) {
  StepMetrics m;
  m.step = 10;
  m.loss = 6.5;
  m.max_loss = 6.625;
  m.grad_norm = 2.0;
  m.lr = 0.002;
  m.tokens_seen = 40960;
  m.tokens_per_second = 2259.5;
  m.tflops = 0.5;
  m.memory = {.peak_bytes = 330985472,
              .capacity_bytes = std::uint64_t{4} * 330985472,
              .active_peak_bytes = 165492736,
              .num_alloc_retries = 2,
              .num_ooms = 1};
  m.data_percent = 12.5;
  m.step_seconds = 0.75;
  m.data_seconds = 0.25;
  m.unix_time = 1700000000.5;
  JsonlSink sink(folder_, 0);
  sink.log(m);
  const std::string common = R"({"step":10,"loss":6.5,"max_loss":6.625,"grad_norm":2.0,"lr":0.002,"tokens_seen":40960,)"
                             R"("tokens_per_second":2259.5,"tflops":0.5,"mfu":)";
  const std::string rest =
      R"("memory_peak_bytes":330985472,"step_seconds":0.75,"data_seconds":0.25,"unix_time":1700000000.5)";
  const std::string last = R"(,"data_percent":12.5,"memory_peak_percent":25.0,"memory_active_bytes":165492736,)"
                           R"("memory_active_percent":12.5,"num_alloc_retries":2,"num_ooms":1)";
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), common + "null," + rest + last + "}\n");
  m.mfu = 50.0;
  m.grad_scale = 65536.0;
  m.bad_records = 3;
  m.time_to_first_step_seconds = 1.5;
  m.time_spent = TimeSpent{{9.0, 3.0}};
  JsonlSink(folder_, 0).log(m);
  EXPECT_EQ(
      read_file(folder_ / "metrics.jsonl"),
      common + "50.0," + rest + R"(,"grad_scale":65536.0,"bad_records":3,"time_to_first_step_seconds":1.5)" + last +
          R"(,"goodput_percent":75.0,"productive_seconds":9.0,"lost_start_seconds":3.0,"lost_load_seconds":0.0,)"
          R"("lost_data_seconds":0.0,"lost_checkpoint_seconds":0.0,"lost_validation_seconds":0.0,"lost_log_seconds":0.0,)"
          R"("lost_other_seconds":0.0,"lost_redone_seconds":0.0,"lost_down_seconds":0.0})" +
          "\n");
}

TEST_F(Jsonl, FloatsReadBackToTheLastBit) {
  const double values[] = {
      0.1, 1.0 / 3.0, static_cast<double>(8.15539f), 5e-324, 1.7976931348623157e308, 1763712000.123456};
  JsonlSink sink(folder_, 0);
  for (const double value : values) {
    StepMetrics m;
    m.step = 1;
    m.loss = value;
    sink.log(m);
  }
  const auto written = rows();
  for (std::size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(written.at(i)["loss"].get<double>(), values[i]);
}

TEST_F(Jsonl, NotFiniteIsNamedAndUnknownIsNull) {
  StepMetrics m;
  m.step = 1;
  m.loss = std::nan("");
  m.max_loss = std::numeric_limits<double>::infinity();
  m.grad_norm = -std::numeric_limits<double>::infinity();
  JsonlSink(folder_, 0).log(m);
  const Json row = rows().at(0);
  EXPECT_EQ(row["loss"], "NaN");
  EXPECT_EQ(row["max_loss"], "Infinity");
  EXPECT_EQ(row["grad_norm"], "-Infinity");
  EXPECT_TRUE(row["mfu"].is_null());
}

TEST_F(Jsonl, RowIsInTheFileAtOnce) {
  JsonlSink sink(folder_ / "made" / "here", 0);
  StepMetrics m;
  m.step = 1;
  sink.log(m);
  EXPECT_THAT(read_file(folder_ / "made" / "here" / "metrics.jsonl"), HasSubstr("\"step\":1"));
}

TEST_F(Jsonl, ResumeDropsTheRowsThatRunAgain) {
  log_steps(0, {1, 10, 20, 30});
  log_steps(20, {30, 40});
  EXPECT_THAT(steps(), ElementsAre(1, 10, 20, 30, 40));
  log_steps(15, {20});
  EXPECT_THAT(steps(), ElementsAre(1, 10, 20));
}

// A rollback in the process that wrote the rows: the next rows go to the rewritten file.
TEST_F(Jsonl, GoesBackWithTheRun) {
  JsonlSink sink(folder_, 0);
  const auto log = [&](std::initializer_list<int> numbers) {
    for (const int step : numbers) {
      StepMetrics m;
      m.step = step;
      sink.log(m);
      ValidationMetrics validation;
      validation.step = step;
      if (step % 20 == 0) sink.log_validation(validation);
    }
  };
  log({1, 10, 20, 30, 40});
  sink.roll_back(25);
  EXPECT_THAT(steps(), ElementsAre(1, 10, 20));
  log({30, 40});
  EXPECT_THAT(steps(), ElementsAre(1, 10, 20, 30, 40));
  sink.roll_back(25);
  sink.roll_back(25);
  log({30});
  EXPECT_THAT(steps(), ElementsAre(1, 10, 20, 30));
  ASSERT_EQ(rows("validation.jsonl").size(), 1U);
  EXPECT_EQ(rows("validation.jsonl")[0]["step"], 20);
}

TEST_F(Jsonl, FreshStartBeginsANewHistory) {
  log_steps(0, {1, 10});
  log_steps(0, {1});
  EXPECT_THAT(steps(), ElementsAre(1));
}

TEST_F(Jsonl, AStartWithoutAStepTouchesNothing) {
  const std::string earlier = "{\"step\":1}\n{\"step\":2}\n", torn = earlier + "{\"step\":3,\"lo";
  std::ofstream(folder_ / "metrics.jsonl") << torn;
  std::ofstream(folder_ / "validation.jsonl") << earlier;
  JsonlSink sink(folder_, 0);
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), torn);
  EXPECT_EQ(read_file(folder_ / "validation.jsonl"), earlier);
  sink.on_step(1);  // cuts both at once, also the file that gets no row from this run
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), "");
  EXPECT_EQ(read_file(folder_ / "validation.jsonl"), "");
}

TEST_F(Jsonl, LastLoggedStepIsOfEitherFile) {
  EXPECT_EQ(last_logged_step(folder_), std::nullopt);
  std::ofstream(folder_ / "metrics.jsonl") << "{\"step\":1}\n{\"step\":20}\n{\"step\":3";
  EXPECT_EQ(last_logged_step(folder_), 20);
  std::ofstream(folder_ / "validation.jsonl") << "{\"step\":25}\n";
  EXPECT_EQ(last_logged_step(folder_), 25);
}

TEST_F(Jsonl, KeptRowsKeepTheirBytes) {
  const std::string first = R"({"step":1, "loss":1.50, "more":[1]})";
  std::ofstream(folder_ / "metrics.jsonl") << first << "\n"
                                           << R"({"step":2})"
                                           << "\n";
  log_steps(1, {});
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), first + "\n");
}

TEST_F(Jsonl, TornAndForeignLinesAreDropped) {
  std::ofstream(folder_ / "metrics.jsonl") << "{\"step\":1}\n[3]\n{\"loss\":2}\n"
                                           << std::string(8, '\0') << "\n{\"step\":2,\"lo";
  log_steps(10, {11});
  EXPECT_THAT(steps(), ElementsAre(1, 11));
}

TEST_F(Jsonl, LastRowWithoutNewlineGetsOne) {
  std::ofstream(folder_ / "metrics.jsonl") << "{\"step\":1}";
  log_steps(1, {2});
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(Jsonl, ValidationHasAFileOfItsOwn) {
  JsonlSink sink(folder_, 0);
  ValidationMetrics m{.step = 5, .loss = 7.25, .perplexity = 1408.1, .tokens = 640, .seconds = 0.5, .best_step = 5};
  sink.log_validation(m);
  m.step = 6;
  sink.log_validation(m);
  const auto row = rows("validation.jsonl").at(0);
  EXPECT_EQ(row["loss"], 7.25);
  EXPECT_EQ(row["perplexity"], 1408.1);
  EXPECT_EQ(row["tokens"], 640);
  EXPECT_EQ(row["seconds"], 0.5);
  EXPECT_EQ(row["is_best"], true);
  EXPECT_EQ(rows("validation.jsonl").at(1)["is_best"], false);
  EXPECT_THAT(read_file(folder_ / "validation.jsonl"),
              ::testing::StartsWith(R"({"step":5,"loss":7.25,"perplexity":1408.1,"tokens":640,"seconds":0.5,)"
                                    R"("is_best":true,"best_step":5,"best_loss":0.0,"tokens_per_second":0.0,)"
                                    R"("memory_peak_bytes":0,"unix_time":0.0,"memory_peak_percent":0.0,)"
                                    R"("memory_active_bytes":0,"memory_active_percent":0.0})"
                                    "\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "metrics.jsonl"));  // created with its first row
}

TEST_F(Jsonl, ValidationLossesAreReadBack) {
  EXPECT_TRUE(read_validation_losses(folder_, 10).empty());
  {
    JsonlSink sink(folder_, 0);
    sink.log_validation({.step = 1, .loss = 1.0 / 3});
    sink.log_validation({.step = 2, .loss = std::numeric_limits<double>::quiet_NaN()});
    sink.log_validation({.step = 4, .loss = 0.25});
  }
  auto losses = read_validation_losses(folder_, 10);
  ASSERT_EQ(losses.count(2), 1u);
  EXPECT_TRUE(std::isnan(losses.at(2)));  // there was a pass
  losses.erase(2);
  EXPECT_EQ(losses, (std::map<std::int64_t, double>{{1, 1.0 / 3}, {4, 0.25}}));
  losses = read_validation_losses(folder_, 3);
  losses.erase(2);
  EXPECT_EQ(losses, (std::map<std::int64_t, double>{{1, 1.0 / 3}}));  // 4 runs again
}

TEST_F(Jsonl, EarlierTimeIsReadFromTheRows) {
  EXPECT_EQ(read_earlier_time(folder_, 5, 2000).total(), 0.0) << "no rows";
  {
    JsonlSink sink(folder_, 0);
    StepMetrics m;
    for (const int step : {10, 20}) {
      m.step = step;
      m.unix_time = 1000 + step;
      m.time_spent = TimeSpent{{step * 1.0, 5}};
      sink.log(m);
    }
  }
  EXPECT_EQ(read_earlier_time(folder_, 0, 2000).total(), 0.0) << "a run that begins anew";
  const TimeSpent spent = read_earlier_time(folder_, 10, 1050);
  EXPECT_EQ(spent[TimeCause::kProductive], 10.0);
  EXPECT_EQ(spent[TimeCause::kStart], 5.0);
  EXPECT_EQ(spent[TimeCause::kRedone], 10.0);
  EXPECT_EQ(spent[TimeCause::kDown], 30.0);
  EXPECT_EQ(read_earlier_time(folder_, 20, 1050)[TimeCause::kProductive], 20.0);
  // A run that had ended was not down until it got more steps; one that was stopped was down.
  for (const auto& [event, down] : {std::pair("end", 1.0), std::pair("stop", 30.0)}) {
    std::ofstream(folder_ / "events.jsonl") << "{\"step\":20,\"unix_time\":1021,\"event\":\"" << event << "\"}\n";
    EXPECT_EQ(read_earlier_time(folder_, 20, 1050)[TimeCause::kDown], down) << event;
  }
  std::filesystem::remove(folder_ / "events.jsonl");
  std::ofstream(folder_ / "metrics.jsonl") << "{\"step\":10,\"unix_time\":1000}\n";  // from an older version
  EXPECT_EQ(read_earlier_time(folder_, 10, 1050).total(), 50.0);
}

TEST_F(Jsonl, TheTimeOfStartsThatFailedIsLost) {
  std::ofstream(folder_ / "metrics.jsonl") << "{\"step\":8,\"unix_time\":90}\n{\"step\":10,\"unix_time\":1010}\n";
  const auto restart = [](double time, double down) {
    return "{\"step\":10,\"unix_time\":" + std::to_string(time) +
           ",\"event\":\"restart\",\"down_seconds\":" + std::to_string(down) + ",\"first_start_unix_time\":1000}\n";
  };
  // The second start failed before its first row.
  std::ofstream(folder_ / "events.jsonl") << restart(1030, 5) << restart(1050, 4);
  const TimeSpent resumed = read_earlier_time(folder_, 10, 1060);
  EXPECT_EQ(resumed[TimeCause::kRedone], 15.0) << "from the last row to the first failure";
  EXPECT_EQ(resumed[TimeCause::kDown], 35.0);
  const TimeSpent anew = read_earlier_time(folder_, 0, 1060);
  EXPECT_EQ(anew[TimeCause::kRedone], 25.0) << "the row of an earlier run does not count";
  EXPECT_EQ(anew[TimeCause::kDown], 35.0);
  EXPECT_EQ(anew.total(), 60.0) << "since the launcher's first start";
  std::filesystem::remove(folder_ / "metrics.jsonl");
  EXPECT_EQ(read_earlier_time(folder_, 0, 1060)[TimeCause::kDown], 60.0) << "no start came to its first row";
}

TEST_F(Jsonl, ScoresOfTasksGoToAFileOfTheirOwn) {
  EvaluationMetrics m{.step = 3};
  m.tasks.emplace_back("easy", 7);
  m.tasks[0].scores.emplace_back("easy", "acc", 0.25, 0.125);
  m.tasks[0].scores.emplace_back("easy", "bits_per_byte", std::nan(""), std::nullopt);
  {
    JsonlSink sink(folder_, 0);
    sink.on_step(1);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "evaluation.jsonl"));
    for (m.step = 3; m.step <= 9; m.step += 3) sink.log_evaluation(m);
    sink.roll_back(6);
  }
  JsonlSink(folder_, 5).on_step(6);
  const auto found = rows("evaluation.jsonl");
  ASSERT_EQ(found.size(), 1u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : found[0].items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("step", "easy/acc", "easy/acc_stderr", "easy/bits_per_byte", "easy/items", "seconds",
                                "unix_time"));
  EXPECT_EQ(found[0]["easy/acc_stderr"], 0.125);
  EXPECT_EQ(found[0]["easy/bits_per_byte"], "NaN");
  EXPECT_EQ(found[0]["easy/items"], 7);
  EXPECT_EQ(last_evaluated_step(folder_, 9), 3);
  EXPECT_EQ(last_evaluated_step(folder_, 2), 0);
}

TEST_F(Jsonl, UnwritablePathIsNamed) {
  std::filesystem::create_directory(folder_ / "metrics.jsonl.tmp");  // in the way of the rewrite
  std::ofstream(folder_ / "metrics.jsonl") << "{\"step\":9}\n";
  try {
    JsonlSink(folder_, 0).on_step(1);
    FAIL() << "nothing was thrown";
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), HasSubstr((folder_ / "metrics.jsonl").string()));
  }
}

}  // namespace
}  // namespace titan::metrics
