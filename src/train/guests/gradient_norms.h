// metrics.gradient_histograms: logs the gradient norms of each layer at logged steps, for sinks that draw them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "distributed/process_group.h"
#include "metrics/metrics_processor.h"
#include "train/step/run_parameters.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Returns a parameter's layer: its name up to the first number ("layers.3" of "layers.3.attention.wq.weight"), else
// the first word ("norm" of "norm.weight").
std::string_view layer_of(std::string_view fqn);

// Sums up norms that the step has computed anyway. Without a pipeline that is a few additions on the host.
class GradientNorms : public StepGuest {
 public:
  // `stages`: the ranks that have different ones of the parameters. `metrics` and `stages` must outlive this; `metrics`
  // logs a step before this sees it.
  GradientNorms(metrics::MetricsProcessor& metrics, const RunParameters& parameters, dist::ProcessGroup& stages);

  // Collective over the stages at logged steps.
  Verdict after_step(const StepView& step) override;

 private:
  struct OwnGradient {
    std::size_t layer;  // of the whole model
    bool is_copy;       // another rank counts it
  };

  metrics::MetricsProcessor& metrics_;
  dist::ProcessGroup& stages_;
  std::vector<OwnGradient> own_;  // in the optimizer's order
  std::size_t num_layers_ = 0;
};

}  // namespace titan::train
