// Writes a run's metrics for TensorBoard, under TorchTitan's tags.
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
  std::filesystem::path folder;     // for this rank's event files
  std::int64_t finished_steps = 0;  // the step that training resumes after
  std::string configuration = {};   // TOML, shown in TensorBoard's Text tab
  // End of the names of this run's files, where other runs may have theirs: no other file is cut. Empty if all files
  // are this run's.
  std::string end_of_names = {};
  // Other folders that this rank cuts: those of ranks of an earlier start that this start does not have.
  std::vector<std::filesystem::path> abandoned = {};
};

// Each start writes its own file into the folder and cuts the steps that run again from earlier ones: TensorBoard shows
// all files as one run with every step once. Touches no file before the first step ends.
class TensorBoardSink : public MetricsSink {
 public:
  explicit TensorBoardSink(SinkOptions options) : options_(std::move(options)) {}
  void on_step(std::int64_t step) override;
  // Writes one event with all known scalars that have a tag. NaN stays NaN.
  void log(const StepMetrics& metrics) override;
  void log_validation(const ValidationMetrics& metrics) override;
  void log_evaluation(const EvaluationMetrics& metrics) override;
  // Writes a histogram of the finite norms under "grad_norm_by_layer", or nothing if there are none.
  void log_gradient_norms(std::int64_t step, std::span<const double> norms) override;
  void roll_back(std::int64_t finished_steps) override;

 private:
  void begin();
  template <typename Metrics>
  void write_scalars(const Metrics& metrics);

  SinkOptions options_;
  std::unique_ptr<EventFile> file_;
  double last_unix_time_ = 0;  // time of the last row
  // Reused, so that a row does not allocate.
  EventEncoder encoder_;
  Scalars scalars_;
  std::vector<double> finite_;
  Histogram histogram_;
};

// Sets `made` to the histogram of `values`, which are finite and at least one: up to 30 buckets of equal width from the
// smallest to the largest value.
void fill_histogram(std::span<const double> values, Histogram& made);

}  // namespace titan::metrics::tensorboard
