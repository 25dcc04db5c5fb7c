// What the metrics of a trial come to.
#pragma once

#include <optional>

#include "lab/runs/metrics_file.h"
#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

using runs::Curve;
using TrialMetrics = runs::RunMetrics;

// The objective of a curve, nothing for an empty one. With min and max, NaN does not count unless
// all are such; in a mean one of them makes the result none.
std::optional<double> reduce(const Curve& curve, const Objective& objective);

}  // namespace titan::sweep
