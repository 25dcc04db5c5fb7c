#include "metrics/metrics_processor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "tests/support/hand_clock.h"

namespace titan::metrics {
namespace {

using namespace std::chrono_literals;

class Recorder : public MetricsSink {
 public:
  explicit Recorder(std::vector<StepMetrics>& rows) : rows_(rows) {}
  void log(const StepMetrics& metrics) override { rows_.push_back(metrics); }

 private:
  std::vector<StepMetrics>& rows_;
};

std::vector<std::unique_ptr<MetricsSink>> recording(std::vector<StepMetrics>& rows) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  sinks.push_back(std::make_unique<Recorder>(rows));
  return sinks;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(MetricsProcessor, LogsTheFirstStepAndEveryFreq) {
  const MetricsProcessor processor(MetricsOptions{.log_freq = 10}, {});
  EXPECT_TRUE(processor.should_log(1));
  EXPECT_FALSE(processor.should_log(2));
  EXPECT_FALSE(processor.should_log(9));
  EXPECT_TRUE(processor.should_log(10));
  EXPECT_FALSE(processor.should_log(11));
  EXPECT_TRUE(processor.should_log(20));
  EXPECT_THROW(MetricsProcessor(MetricsOptions{.log_freq = 0}, {}), ConfigError);
}

TEST(MetricsProcessor, StepTimeLeavesOutWhatThroughputCounts) {
  test::HandClock time;
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(
      MetricsOptions{.flops_per_token = 2'000'000, .non_data_parallel_size = 2, .now = time.clock()}, recording(rows));
  time.advance(3s);  // start-up
  processor.begin_step();
  processor.add_data(1000, 0.25);
  time.advance(500ms);
  processor.end_step(1);
  time.advance(500ms);  // reducing the arguments of log()
  const double earliest = unix_seconds();
  EXPECT_FALSE(processor.last());
  processor.log({.step = 1, .loss = 2.0, .max_loss = 3.0, .grad_norm = 4.0, .lr = 5.0, .tokens_seen = 6});
  EXPECT_EQ(processor.last()->loss, 2.0);
  const StepMetrics& m = rows.at(0);
  EXPECT_EQ(m.step, 1);
  EXPECT_EQ(m.loss, 2.0);
  EXPECT_EQ(m.max_loss, 3.0);
  EXPECT_EQ(m.grad_norm, 4.0);
  EXPECT_EQ(m.lr, 5.0);
  EXPECT_EQ(m.tokens_seen, 6);
  EXPECT_EQ(m.step_seconds, 0.5);
  EXPECT_EQ(m.data_seconds, 0.25);
  EXPECT_EQ(m.data_percent, 6.25);
  EXPECT_EQ(m.tokens_per_second, 125);  // one of two ranks that share a batch, over 4 s
  EXPECT_DOUBLE_EQ(m.tflops, 125 * 2e6 / 1e12);
  EXPECT_FALSE(m.mfu);
  EXPECT_GE(m.unix_time, earliest);
  EXPECT_LE(m.unix_time, unix_seconds());
}

TEST(MetricsProcessor, EveryRowBeginsAnew) {
  test::HandClock time;
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{.log_freq = 2, .now = time.clock()}, recording(rows));
  processor.set_tokens_seen(5000);
  for (int step = 1; step <= 4; ++step) {
    processor.begin_step();
    processor.add_data(100, 0.5 * step);
    processor.add_data(100, 0.0);
    time.advance(250ms * step);
    processor.end_step(step);
    if (processor.should_log(step)) processor.log({.step = step});
    time.advance(125ms);  // a save
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(processor.tokens_seen(), 5800);
  EXPECT_DOUBLE_EQ(rows[0].data_seconds, 0.5);
  EXPECT_DOUBLE_EQ(rows[1].data_seconds, 1.0);
  EXPECT_DOUBLE_EQ(rows[2].data_seconds, (1.5 + 2.0) / 2);  // the mean of two steps
  EXPECT_EQ(rows[0].step_seconds, 0.25);
  EXPECT_EQ(rows[1].step_seconds, 0.5);
  EXPECT_EQ(rows[2].step_seconds, (0.75 + 1.0) / 2);
  EXPECT_EQ(rows[0].tokens_per_second, 200 / 0.25);
  EXPECT_EQ(rows[1].tokens_per_second, 200 / (0.125 + 0.5));
  EXPECT_EQ(rows[2].tokens_per_second, 400 / (0.125 + 0.75 + 0.125 + 1.0));
}

TEST(MetricsProcessor, OnlyTheFirstRowTellsTheTimeToTheFirstStep) {
  double age = 0;
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{.process_age = [&] { return age; }}, recording(rows));
  for (const int step : {7, 8, 9, 10, 11}) {  // a resumed run: its first step is not 1
    processor.begin_step();
    age += 1.5;
    processor.end_step(step);
    if (step >= 10) processor.log({.step = step});
  }
  EXPECT_EQ(rows.at(0).time_to_first_step_seconds, 1.5);
  EXPECT_FALSE(rows.at(1).time_to_first_step_seconds);
}

TEST(MetricsProcessor, UtilizationOnceThePeakIsKnown) {
  std::vector<StepMetrics> rows;
  test::HandClock time;
  MetricsProcessor processor(MetricsOptions{.flops_per_token = 1'000'000'000, .now = time.clock()}, recording(rows));
  processor.set_peak_flops(50e9);
  processor.begin_step();
  processor.add_data(10, 0.0);
  time.advance(2s);
  processor.end_step(1);
  processor.log({.step = 1});
  EXPECT_EQ(rows.at(0).mfu, 10);  // 5e9 of 50e9 a second, in percent
}

TEST(MetricsProcessor, MemoryComesFromTheProbe) {
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{.memory = [] { return MemoryUsage{.peak_bytes = 3, .capacity_bytes = 4}; }},
                             recording(rows));
  processor.begin_step();
  processor.end_step(1);
  processor.log({.step = 1});
  EXPECT_EQ(rows.at(0).memory.peak_bytes, 3u);
  EXPECT_EQ(rows.at(0).memory.capacity_bytes, 4u);
}

TEST(MetricsProcessor, TimeSpentAddsUpOverStarts) {
  std::vector<StepMetrics> rows;
  std::array<double, kNumPhases> phases{};
  MetricsProcessor processor(MetricsOptions{.process_age = [] { return 10.0; }, .phases = [&] { return phases; }},
                             recording(rows));
  processor.set_earlier_time(TimeSpent{{100, 1}});
  processor.begin_step();
  phases[static_cast<std::size_t>(Phase::kStep)] = 4.0;
  processor.end_step(1);
  processor.log({.step = 1});
  ASSERT_TRUE(rows.at(0).time_spent);
  EXPECT_EQ((*rows[0].time_spent)[TimeCause::kProductive], 104.0);
  EXPECT_EQ((*rows[0].time_spent)[TimeCause::kStart], 7.0);
  EXPECT_EQ(processor.time_spent().total(), 111.0);
}

TEST(MetricsProcessor, CommunicationIsThatOfTheSteps) {
  std::vector<StepMetrics> rows;
  double spent = 100;
  MetricsProcessor processor(MetricsOptions{.communication = [&] { return spent; }}, recording(rows));
  for (std::int64_t step = 1; step <= 2; ++step) {
    processor.begin_step();
    spent += 3;
    processor.end_step(step);
    spent += 50;  // a save, a validation
  }
  processor.log({.step = 2});
  EXPECT_EQ(rows.at(0).comm_seconds, 3.0);
  processor.begin_step();
  processor.end_step(3);
  processor.log({.step = 3});
  EXPECT_EQ(rows.at(1).comm_seconds, 0.0);
}

TEST(MetricsProcessor, StepsThatAreRolledBackCountAsRedone) {
  std::vector<StepMetrics> rows;
  std::array<double, kNumPhases> phases{};
  MetricsProcessor processor(MetricsOptions{.process_age = [] { return 50.0; }, .phases = [&] { return phases; }},
                             recording(rows));
  const auto steps = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step <= to; ++step) {
      processor.begin_step();
      phases[static_cast<std::size_t>(Phase::kStep)] += 2.0;
      processor.end_step(step);
    }
  };
  processor.roll_back(0);  // without a step there is nothing to redo
  steps(1, 10);
  processor.roll_back(7);
  EXPECT_EQ(processor.time_spent()[TimeCause::kRedone], 6.0);
  EXPECT_EQ(processor.time_spent()[TimeCause::kProductive], 14.0);
  steps(8, 9);
  processor.roll_back(7);
  EXPECT_EQ(processor.time_spent()[TimeCause::kRedone], 10.0);
  EXPECT_EQ(processor.time_spent()[TimeCause::kProductive], 14.0);
  EXPECT_EQ(processor.time_spent().total(), 50.0);
}

TEST(ProcessStats, PeakFollowsWhatIsTouchedAndStays) {
  const std::uint64_t before = process_memory().peak_bytes;
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  {
    std::vector<char> block(kBytes, 1);
    EXPECT_EQ(*std::max_element(block.begin(), block.begin() + 4096), 1);
  }
  const MemoryUsage after = process_memory();
  // The kernel counts pages per thread in batches (64 pages and more), hence a MiB of slack.
  EXPECT_GE(after.peak_bytes + (1 << 20), kBytes);
  EXPECT_GE(after.peak_bytes, before);
  EXPECT_GT(after.capacity_bytes, after.peak_bytes);
}

// A child starts after its parent reads the clock before the fork, and before it reads the clock first.
TEST(ProcessStats, AgeOfTheProcessIsTheTimeSinceItsStart) {
  const double before = seconds_since_boot();
  const pid_t child = fork();
  if (child == 0) {
    const double first = seconds_since_boot();
    double earliest = first;
    while (earliest < first + 0.1) earliest = seconds_since_boot();
    const double age = seconds_since_process_start();
    const double latest = seconds_since_boot();
    const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));  // resolution of the start in the kernel
    _exit(age < earliest - first ? 1 : age > latest - before + tick ? 2 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: too short, 2: too long";
}

}  // namespace
}  // namespace titan::metrics
