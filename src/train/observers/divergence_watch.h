// training.on_nan: what happens when the gradients are NaN or infinite.
#pragma once

#include <cstdint>

#include "checkpoint/checkpointer.h"
#include "config/job_config.h"
#include "train/observers/metrics_log.h"
#include "train/step/step_observer.h"

namespace titan::train {

// Once a step's gradients hold a NaN, so do the weights after it, and every checkpoint from there on: it comes before
// the checkpoints in the list. Not for float16, whose gradient scaler leaves such steps out by itself.
class DivergenceWatch : public StepObserver {
 public:
  // All must outlive this. `log` reports the step that ends the run, where it was not logged.
  DivergenceWatch(const config::JobConfig& config, at::Device device, checkpoint::Checkpointer& checkpointer,
                  MetricsLog& log)
      : config_(config), norm_is_on_host_(device.is_cpu()), checkpointer_(checkpointer), log_(log) {}

  std::optional<RunEnd> after_step(const FinishedStep& step) override;

 private:
  bool is_read(const FinishedStep& step) const;
  RunEnd stop(const FinishedStep& step, float norm);

  const config::JobConfig& config_;
  bool norm_is_on_host_;
  checkpoint::Checkpointer& checkpointer_;
  MetricsLog& log_;
  bool has_warned_ = false;
};

}  // namespace titan::train
