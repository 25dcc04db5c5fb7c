// Base of sinks that write a file of steps and a file of validations, and append to them after a resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "metrics/history/step_history.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// Writes from the end of the first step on.
class HistorySink : public MetricsSink {
 public:
  void on_step(std::int64_t /*step*/) override {
    steps_.begin();
    validations_.begin();
  }
  void roll_back(std::int64_t finished_steps) override {
    steps_.roll_back(finished_steps);
    validations_.roll_back(finished_steps);
  }
  void check() override {
    steps_.check();
    validations_.check();
  }

 protected:
  HistorySink(std::filesystem::path steps, StepHistory::Format format_of_steps, std::filesystem::path validations,
              StepHistory::Format format_of_validations, std::int64_t finished_steps)
      : steps_(std::move(steps), finished_steps, std::move(format_of_steps)),
        validations_(std::move(validations), finished_steps, std::move(format_of_validations)) {
    row_.reserve(kMaxRowBytes);
  }

  StepHistory steps_;
  StepHistory validations_;
  std::string row_;  // buffer for the current row
};

}  // namespace titan::metrics
