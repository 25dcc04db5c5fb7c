// Tests that reporting allocates nothing once it runs, with a row or without.
#include <gtest/gtest.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <array>

#include "metrics/make_sinks.h"
#include "metrics/metrics_processor.h"
#include "tests/support/count_allocations.h"
#include "tests/support/memory_folder.h"
#include "tests/support/temporary_folder.h"

namespace titan::metrics {
namespace {

TEST(Allocations, NoneByStepsAndRows) {
  const test::TemporaryFolder folder(test::memory_folder());
  const auto old = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::basic_file_sink_mt>("/dev/null")));
  config::JobConfig config;
  config.job.dump_folder = folder.path();
  config.metrics.enable_csv = true;
  config.metrics.enable_tensorboard = true;
  {
    MetricsProcessor processor({.log_freq = 10, .communication = [] { return 1.0; }}, make_sinks(config, 0, {0, 1}));
    const std::array norms = {0.5, 0.25, 2.0};
    for (std::int64_t step = 1; step <= 60; ++step) {
      const auto before = test::allocations();
      ASSERT_GT(before.made, 0) << "nobody counts";
      processor.begin_step();
      processor.add_data(1024, 0.001);
      processor.end_step(step);
      const auto of_step = test::allocations().since(before);
      if (step > 1) {
        EXPECT_EQ(of_step.made, 0) << "step " << step;
      }
      if (!processor.should_log(step)) continue;
      processor.log({.step = step, .loss = 1.0 / static_cast<double>(step)});
      processor.log_gradient_norms(step, norms);
      const auto of_row = test::allocations().since(before);
      if (step > 10) {
        EXPECT_EQ(of_row.made, 0) << "row at step " << step;
      }
    }
  }
  spdlog::set_default_logger(old);
}

}  // namespace
}  // namespace titan::metrics
