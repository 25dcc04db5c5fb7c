// A run's numbers for TensorBoard, under the tags that TorchTitan gives them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "metrics/rows/step_metrics.h"
#include "metrics/tensorboard/event.h"
#include "metrics/tensorboard/event_file.h"

namespace titan::metrics::tensorboard {

struct SinkOptions {
  std::filesystem::path folder;     // of this rank's event files
  std::int64_t finished_steps = 0;  // the step that training resumes after
  std::string configuration = {};   // TOML, shown in TensorBoard's tab for text
  // Folders that this rank looks after beside its own: of ranks of an earlier start that this one does not have.
  std::vector<std::filesystem::path> abandoned = {};
};

// Each start writes a file of its own into the folder, and cuts off from earlier ones what runs again: TensorBoard shows
// all of them as one run, in which every step is once. Touches nothing before the first step ends.
class TensorBoardSink : public MetricsSink {
 public:
  explicit TensorBoardSink(SinkOptions options) : options_(std::move(options)) {}
  void on_step(std::int64_t step) override;
  // One event with all scalars that are known and have a tag. A NaN stays one.
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
  // A histogram of those that are finite, under "grad_norm_by_layer"; none where none is.
  void log_gradient_norms(std::int64_t step, std::span<const double> norms) override;
  void roll_back(std::int64_t finished_steps) override;

 private:
  void begin();
  template <typename Metrics>
  void write_scalars(const Metrics& metrics);

  SinkOptions options_;
  std::unique_ptr<EventFile> file_;
  double last_unix_time_ = 0;  // of the last row
  // Kept for their memory, so that a row asks for none.
  EventEncoder encoder_;
  Scalars scalars_;
  std::vector<double> finite_;
  Histogram histogram_;
};

// Makes `made` the histogram of `values`, which are finite, at least one: up to 30 buckets of the same width from the
// least to the largest.
void fill_histogram(std::span<const double> values, Histogram& made);

}  // namespace titan::metrics::tensorboard
