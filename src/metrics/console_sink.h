// Logs TorchTitan's one line per step, through the program's log.
#pragma once

#include <string>

#include "metrics/rows/evaluation_metrics.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// Puts into `line`
// "step:  1  loss:  8.04030  grad_norm:  1.3470  memory:  1.02GiB(1.08%)  tps: 27,483  tflops: 1.97  mfu: 0.20%",
// equal to TorchTitan's line with and without colors, except that an unknown mfu reads "N/A".
void format_console_line(const StepMetrics& metrics, bool colors, std::string& line);

// Puts into `line` "validate step:  5  loss:  7.1234  memory:  1.02GiB(1.08%)  tps: 27,483"
void format_console_line(const ValidationMetrics& metrics, bool colors, std::string& line);

// Puts into `line` "evaluate step: 10  arc_easy: acc 0.2500 +- 0.0045, acc_norm 0.3125 +- 0.0049 (2,376 items)".
void format_console_line(std::int64_t step, const TaskScores& task, bool colors, std::string& line);

class ConsoleSink : public MetricsSink {
 public:
  // `colors`: the configured setting; ignored (no colors) if standard output is not a terminal or NO_COLOR is set.
  explicit ConsoleSink(bool colors);
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
  // Logs a line per task.
  void log_evaluation(const EvaluationMetrics& metrics) override;

 private:
  bool colors_;
  std::string line_;
};

}  // namespace titan::metrics
