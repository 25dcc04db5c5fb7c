#include "metrics/metrics_processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace titan::metrics {
namespace {

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

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

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

// sleep_for never sleeps less than asked, so lower bounds are exact; upper bounds allow the scheduler of a busy machine
// a delay, and are wide enough to hold yet narrow enough to tell the two kinds of time apart.
TEST(MetricsProcessor, StepTimeLeavesOutWhatThroughputCounts) {
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{.flops_per_token = 2'000'000, .non_data_parallel_size = 2},
                             recording(rows));
  sleep_ms(400);  // start-up
  processor.begin_step();
  processor.add_data(1000, 0.25);
  sleep_ms(20);
  processor.end_step(1);
  processor.log({.step = 1, .loss = 2.0, .max_loss = 3.0, .grad_norm = 4.0, .lr = 5.0, .tokens_seen = 6});
  const StepMetrics& m = rows.at(0);
  EXPECT_EQ(m.step, 1);
  EXPECT_EQ(m.loss, 2.0);
  EXPECT_EQ(m.max_loss, 3.0);
  EXPECT_EQ(m.grad_norm, 4.0);
  EXPECT_EQ(m.lr, 5.0);
  EXPECT_EQ(m.tokens_seen, 6);
  EXPECT_GE(m.step_seconds, 0.02);
  EXPECT_LT(m.step_seconds, 0.3);
  EXPECT_EQ(m.data_seconds, 0.25);
  EXPECT_LE(m.tokens_per_second, 1000 / (0.42 * 2));
  EXPECT_GT(m.tokens_per_second, 1000 / (4.0 * 2));
  EXPECT_DOUBLE_EQ(m.tflops, m.tokens_per_second * 2e6 / 1e12);
  EXPECT_FALSE(m.mfu);
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(m.unix_time, now, 2.0);
}

TEST(MetricsProcessor, EveryRowBeginsAnew) {
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{.log_freq = 2}, recording(rows));
  processor.set_tokens_seen(5000);
  for (int step = 1; step <= 4; ++step) {
    processor.begin_step();
    processor.add_data(100, 0.5 * step);
    processor.add_data(100, 0.0);
    sleep_ms(10);
    processor.end_step(step);
    if (processor.should_log(step)) processor.log({.step = step});
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(processor.tokens_seen(), 5800);
  EXPECT_DOUBLE_EQ(rows[0].data_seconds, 0.5);
  EXPECT_DOUBLE_EQ(rows[1].data_seconds, 1.0);
  EXPECT_DOUBLE_EQ(rows[2].data_seconds, (1.5 + 2.0) / 2);  // the mean of two steps
  EXPECT_GE(rows[2].step_seconds, 0.01);
  EXPECT_LT(rows[2].step_seconds, 0.5);
  EXPECT_LE(rows[2].tokens_per_second, 400 / 0.02);
}

TEST(MetricsProcessor, OnlyTheFirstRowTellsTheTimeToTheFirstStep) {
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{}, recording(rows));
  for (const int step : {7, 8, 9, 10, 11}) {  // a resumed run: its first step is not 1
    processor.begin_step();
    processor.end_step(step);
    if (step == 7) sleep_ms(300);
    if (step >= 10) processor.log({.step = step});
  }
  ASSERT_TRUE(rows.at(0).time_to_first_step_seconds);
  // It ended 300 ms before the row was made, so the age of the process has to be larger by that, less one 10 ms tick.
  EXPECT_LT(*rows.at(0).time_to_first_step_seconds, seconds_since_process_start() - 0.29);
  EXPECT_FALSE(rows.at(1).time_to_first_step_seconds);
}

TEST(MetricsProcessor, UtilizationOnceThePeakIsKnown) {
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{}, recording(rows));
  processor.set_flops_per_token(1'000'000'000);
  processor.set_peak_flops(50e12);
  processor.begin_step();
  processor.add_data(10, 0.0);
  processor.end_step(1);
  processor.log({.step = 1});
  ASSERT_TRUE(rows.at(0).mfu);
  EXPECT_DOUBLE_EQ(*rows.at(0).mfu, 100 * rows.at(0).tokens_per_second * 1e9 / 50e12);
}

TEST(MetricsProcessor, MemoryComesFromTheProbe) {
  std::vector<StepMetrics> rows;
  MetricsProcessor processor(MetricsOptions{.memory = [] { return MemoryUsage{3, 4}; }}, recording(rows));
  processor.begin_step();
  processor.end_step(1);
  processor.log({.step = 1});
  EXPECT_EQ(rows.at(0).memory_peak_bytes, 3u);
  EXPECT_EQ(rows.at(0).memory_capacity_bytes, 4u);
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

TEST(ProcessStats, AgeOfTheProcessGrowsWithTheClock) {
  const double before = seconds_since_process_start();
  sleep_ms(50);
  const double after = seconds_since_process_start();
  EXPECT_GE(before, 0.0);
  EXPECT_LT(before, 60.0);  // this test's time limit
  EXPECT_GE(after - before, 0.05);
  EXPECT_LT(after - before, 5.0);
}

}  // namespace
}  // namespace titan::metrics
