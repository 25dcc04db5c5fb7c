// Reports steps: reduces the values of a logged step over ranks, reads them back from the device, and passes them to
// the metrics processor.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "contract/batch_source.h"
#include "distributed/parallel_dims.h"
#include "metrics/metrics_processor.h"
#include "train/step/step_guest.h"

namespace titan::train {

class MetricsLog : public StepGuest {
 public:
  // `compute_dtype`: training.mixed_precision_param. The other arguments must outlive this.
  MetricsLog(metrics::MetricsProcessor& metrics, const BatchSource& data, const dist::Meshes& meshes,
             std::string compute_dtype)
      : metrics_(metrics), data_(data), meshes_(meshes), compute_dtype_(std::move(compute_dtype)) {}

  void before_step() override { metrics_.begin_step(); }
  Verdict after_step(const StepView& step) override;
  void finish(RunEnd /*end*/, std::int64_t /*finished_steps*/) override { metrics_.check_files(); }

  bool is_logged(std::int64_t step) const { return metrics_.should_log(step); }
  // Returns the loss of the last logged step; nullopt before the first.
  std::optional<double> last_loss() const {
    return metrics_.last() ? std::optional(metrics_.last()->loss) : std::nullopt;
  }
  // Logs a step that is not logged otherwise. Collective.
  void log(const StepView& step);

 private:
  void wait_for_device() const;
  void measure_peak_flops();

  metrics::MetricsProcessor& metrics_;
  const BatchSource& data_;
  const dist::Meshes& meshes_;
  std::string compute_dtype_;
};

}  // namespace titan::train
