#include "lab/sweep/results/trial_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace titan::sweep {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::optional<double> reduce(const Curve& curve, const Objective& objective) {
  if (curve.values.empty()) return std::nullopt;
  if (objective.reduction == "last") return curve.values.back();
  if (objective.reduction == "mean") {
    const auto count = std::min(curve.values.size(), static_cast<std::size_t>(objective.window));
    return std::accumulate(curve.values.end() - static_cast<std::ptrdiff_t>(count), curve.values.end(), 0.0) /
           static_cast<double>(count);
  }
  double best = kNaN;
  for (const double value : curve.values)
    if (!std::isnan(value) && (std::isnan(best) || (objective.reduction == "max" ? value > best : value < best)))
      best = value;
  return best;
}

}  // namespace titan::sweep
