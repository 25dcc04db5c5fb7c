// Reduces the metrics of a trial to its objective.
#pragma once

#include <optional>

#include "lab/runs/metrics_file.h"
#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

using runs::Curve;
using TrialMetrics = runs::RunMetrics;

// Returns the objective of a curve, nullopt for an empty one. With min and max, NaN counts only if
// all values are NaN; a mean with a NaN is NaN.
std::optional<double> reduce(const Curve& curve, const Objective& objective);

}  // namespace titan::sweep
