// The expected lines were printed by TorchTitan 0.2.2's f-string for the same numbers.
#include "metrics/console_sink.h"

#include <gtest/gtest.h>

#include <limits>

namespace titan::metrics {
namespace {

template <typename Metrics>
std::string line_of(const Metrics& metrics, bool colors) {
  std::string line = "what it was";
  format_console_line(metrics, colors, line);
  return line;
}

constexpr std::uint64_t kMiB = 1024 * 1024, kGiB = 1024 * kMiB;

TEST(ConsoleLine, Plain) {
  StepMetrics m;
  m.step = 1;
  m.loss = 8.0403;
  m.grad_norm = 1.347;
  m.memory.peak_bytes = static_cast<std::uint64_t>(1.02 * kGiB);
  m.memory.capacity_bytes = static_cast<std::uint64_t>(94.4 * kGiB);
  m.tokens_per_second = 27483.4;
  m.tflops = 1.974;
  m.mfu = 0.2;
  EXPECT_EQ(
      line_of(m, false),
      "step:  1  loss:  8.04030  grad_norm:  1.3470  memory:  1.02GiB(1.08%)  tps: 27,483  tflops: 1.97  mfu: 0.20%");
}

TEST(ConsoleLine, ColoredLargeAndRoundedToEven) {
  StepMetrics m;
  m.step = 12345;
  m.loss = 0.123456789;
  m.grad_norm = 123.45678;
  m.memory.peak_bytes = 10 * kGiB;
  m.memory.capacity_bytes = 24 * kGiB;
  m.tokens_per_second = 2500000.5;
  m.tflops = 12345.678;
  m.mfu = 41.237;
  EXPECT_EQ(line_of(m, true),
            "\x1b[31mstep: 12345  \x1b[32mloss:  0.12346  \x1b[38;2;180;60;0mgrad_norm: 123.4568  "
            "\x1b[38;2;54;234;195mmemory: 10.00GiB(41.67%)  \x1b[34mtps: 2,500,000  \x1b[36mtflops: 12,345.68  "
            "\x1b[35mmfu: 41.24%\x1b[39m");
}

TEST(ConsoleLine, NotFiniteLikePython) {
  StepMetrics m;
  m.step = 7;
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.memory.peak_bytes = 5 * kMiB;
  m.memory.capacity_bytes = kGiB;
  m.tokens_per_second = 2.5;
  m.tflops = 0.001;
  m.mfu = 0.0;
  for (const double nan : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN()}) {
    m.loss = nan;
    EXPECT_EQ(
        line_of(m, false),
        "step:  7  loss:      nan  grad_norm:     inf  memory:  0.00GiB(0.49%)  tps: 2  tflops: 0.00  mfu: 0.00%");
  }
}

TEST(ConsoleLine, UnknownPeakHasNoUtilization) {
  const std::string line = line_of(StepMetrics{}, false);
  EXPECT_EQ(line.substr(line.find("mfu")), "mfu: N/A");
}

TEST(ConsoleLine, Validation) {
  ValidationMetrics m;
  m.step = 5;
  m.loss = 7.12344;
  m.perplexity = 1240.71234;
  m.tokens_per_second = 27483.4;
  m.memory.peak_bytes = static_cast<std::uint64_t>(1.02 * kGiB);
  m.memory.capacity_bytes = 4 * kGiB;
  // TorchTitan's line, followed by the values that it lacks.
  const std::string line =
      "validate step:  5  loss:  7.1234  memory:  1.02GiB(25.50%)  tps: 27,483  perplexity: 1240.7123";
  EXPECT_EQ(line_of(m, false), line);
  m.best_step = 3;
  m.best_loss = 7.00006;
  EXPECT_EQ(line_of(m, false), line + "  best: 7.0001 at step 3");
}

}  // namespace
}  // namespace titan::metrics
