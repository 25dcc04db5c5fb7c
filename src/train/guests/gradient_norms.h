// metrics.gradient_histograms: logs the gradient norms of each layer at logged steps, for sinks that draw them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/metrics_processor.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Returns a parameter's layer: its name up to the first number ("layers.3" of "layers.3.attention.wq.weight"), else
// the first word ("norm" of "norm.weight").
std::string_view layer_of(std::string_view fqn);

// Sums up norms that the step has computed anyway: a few additions on the host, no other computation or communication.
class GradientNorms : public StepGuest {
 public:
  // `fqns`: names of the optimizer's parameters, in its order. `metrics` must outlive this, and log a step before this
  // sees it.
  GradientNorms(metrics::MetricsProcessor& metrics, const std::vector<std::string>& fqns);

  Verdict after_step(const StepView& step) override;

 private:
  metrics::MetricsProcessor& metrics_;
  std::vector<std::size_t> layer_;  // layer of each parameter
  std::vector<double> norms_;       // norm of each layer
};

}  // namespace titan::train
