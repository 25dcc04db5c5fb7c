#include "metrics/guarded_sinks.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>
#include <stdexcept>
#include <vector>

#include "metrics/metrics_processor.h"

namespace titan::metrics {
namespace {

using ::testing::HasSubstr;

// Counts rows; the one of step 2 and later ones have no room.
class SmallSink : public MetricsSink {
 public:
  explicit SmallSink(int& calls) : calls_(calls) {}
  void log(const StepMetrics& metrics) override {
    ++calls_;
    if (metrics.step >= 2) throw std::runtime_error("write rows: No space left on device");
  }

 private:
  int& calls_;
};

class GuardedSinks : public ::testing::Test {
 protected:
  GuardedSinks() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_st>(log_)));
  }
  ~GuardedSinks() override { spdlog::set_default_logger(before_); }

  static void log_steps(MetricsSink& sink, int last) {
    for (int step = 1; step <= last; ++step) {
      StepMetrics m;
      m.step = step;
      sink.log(m);
    }
  }
  std::size_t num_lines() const {
    const std::string text = log_.str();
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  std::ostringstream log_;
  std::shared_ptr<spdlog::logger> before_;
  int calls_ = 0;
};

TEST_F(GuardedSinks, FilesThatARunCanDoWithoutEndWithOneWarning) {
  ExpendableSink sink(Expendable("tables"), std::make_unique<SmallSink>(calls_));
  log_steps(sink, 5);
  sink.on_step(6);
  sink.check();
  EXPECT_EQ(calls_, 2);  // rows behind a missing one would hide it
  EXPECT_EQ(num_lines(), 1u);
  EXPECT_THAT(log_.str(), HasSubstr("write rows: No space left on device. Training goes on without tables"));
  EXPECT_EQ(sink.failure(), "");
}

TEST_F(GuardedSinks, TheRecordOfARunSaysWhyItCannotGoOn) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  int other_calls = 0;
  sinks.push_back(std::make_unique<ExpendableSink>(Expendable("tables"), std::make_unique<SmallSink>(other_calls)));
  sinks.push_back(std::make_unique<RecordSink>(std::make_unique<SmallSink>(calls_)));
  MetricsProcessor processor({.log_freq = 1}, std::move(sinks));
  for (int step = 1; step <= 4; ++step) {
    processor.begin_step();
    processor.end_step(step);
    processor.log({.step = step});
    EXPECT_EQ(processor.record_failure(), step == 1 ? "" : "write rows: No space left on device");
  }
  EXPECT_EQ(calls_, 2);
}

}  // namespace
}  // namespace titan::metrics
