// Draws one line at the bottom of a terminal, under the log lines, after every step.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// Puts " 42% |########            | 42/100  loss 3.1416  tps 2,650  0:12 left" into `text`, cut to `columns`. If there
// is room, the memory ("  1.02GiB") and then `sparkline` follow.
void format_progress(std::int64_t step, std::int64_t total_steps, const StepMetrics* last, double seconds_left,
                     int columns, std::string_view sparkline, std::string& text);

// Puts into `text` one UTF-8 column of eight possible heights per value: the largest value is the highest, one that is
// not finite a blank. Empty for fewer than two values.
void format_sparkline(std::span<const double> values, std::string& text);

namespace detail {
class BarLogSink;
}

// While it exists, every line of the default logger goes through it: it wipes the bar, prints the line and draws the
// bar again. Other output to the terminal is not seen and may leave a piece of the bar behind. Make and destroy it
// (before the logger is replaced) while no other thread logs. Destruction wipes the bar.
class ProgressBar : public MetricsSink {
 public:
  // `terminal`: stays open while this lives; the logger must write to the same place.
  ProgressBar(std::FILE* terminal, std::int64_t total_steps);
  ~ProgressBar() override;
  void log(const StepMetrics& metrics) override;
  void on_step(std::int64_t step) override;
  void on_progress(std::int64_t step, const StepProgress& progress, double seconds) override;

 private:
  void draw();

  std::FILE* terminal_;
  std::int64_t total_steps_;
  std::shared_ptr<detail::BarLogSink> log_sink_;
  StepMetrics last_;
  bool has_last_ = false;
  std::vector<double> losses_;   // losses of the last rows
  std::int64_t first_step_ = 0;  // 0 until a step ended
  std::int64_t step_ = 0;
  std::chrono::steady_clock::time_point first_step_end_;
  std::chrono::steady_clock::time_point last_draw_;
  std::string sparkline_, text_;  // reused, so that drawing does not allocate
};

// Returns a bar on standard output, or null if that is not a terminal: then the console sink's lines suffice.
std::unique_ptr<MetricsSink> make_progress_bar(std::int64_t total_steps);

}  // namespace titan::metrics
