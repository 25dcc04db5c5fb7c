// What sinks have in common that write a file of steps and a file of validations, which go on where a run goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "metrics/history/step_history.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// From the end of the first step on.
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

 protected:
  HistorySink(std::filesystem::path steps, StepHistory::Format format_of_steps, std::filesystem::path validations,
              StepHistory::Format format_of_validations, std::int64_t finished_steps)
      : steps_(std::move(steps), finished_steps, std::move(format_of_steps)),
        validations_(std::move(validations), finished_steps, std::move(format_of_validations)) {
    row_.reserve(kMaxRowBytes);
  }

  StepHistory steps_;
  StepHistory validations_;
  std::string row_;  // made here, one after another
};

}  // namespace titan::metrics
