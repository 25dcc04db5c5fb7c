// Warns if float16 training learns nothing: a gradient scale that keeps falling means that gradients are never finite.
#pragma once

#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

class GradScaleWatch : public MetricsSink {
 public:
  // Warns once each time the scale is below 1 in three consecutive logged steps.
  void log(const StepMetrics& metrics) override;

 private:
  int num_small_ = 0;  // consecutive logged steps with a scale below 1
};

}  // namespace titan::metrics
