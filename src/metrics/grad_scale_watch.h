// Warns when float16 training learns nothing: a gradient scale that keeps falling means gradients that are never
// finite.
#pragma once

#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

class GradScaleWatch : public MetricsSink {
 public:
  // One warning for each time that the scale was below 1 in three logged steps in a row.
  void log(const StepMetrics& metrics) override;

 private:
  int num_small_ = 0;  // logged steps in a row
};

}  // namespace titan::metrics
