// metrics.gradient_histograms: at logged steps, the norms of the gradients layer by layer, for sinks that draw them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/metrics_processor.h"
#include "train/step/step_observer.h"

namespace titan::train {

// "layers.3" of "layers.3.attention.wq.weight", "norm" of "norm.weight": up to a number, or else the first word.
std::string_view layer_of(std::string_view fqn);

// The step has computed the norm of each gradient anyway: nothing is computed or communicated for this but a sum of a few
// numbers on the host.
class GradientNorms : public StepObserver {
 public:
  // `fqns`: of all parameters, in the optimizer's order. `metrics` must outlive this, and hears of a step before.
  GradientNorms(metrics::MetricsProcessor& metrics, const std::vector<std::string>& fqns);

  std::optional<RunEnd> after_step(const FinishedStep& step) override;

 private:
  metrics::MetricsProcessor& metrics_;
  std::vector<std::size_t> layer_;  // of each parameter
  std::vector<double> norms_;       // of each layer
};

}  // namespace titan::train
