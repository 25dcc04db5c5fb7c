#include "train/guests/numerics/replica_watch.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <cmath>

#include "base/log.h"
#include "base/process/phase.h"

namespace titan::train {

Verdict ReplicaWatch::after_step(const StepView& step) {
  if (!parts_.check.has_copies() || !is_due(step)) return Verdict::go_on();
  const PhaseScope phase(Phase::kLog);
  const ReplicaReport report = parts_.check.run();
  if (report.differences.empty()) return Verdict::go_on();
  const std::string what = describe(report);
  parts_.events.append("drift", step.number, {{"what", what}});
  parts_.checkpointer.finish();  // the save under way is of a step whose copies were equal
  if (speaks_for_all())
    spdlog::error(
        "step {}: ranks hold different copies of what must be equal: {}. A bit in memory has changed, or a rank has "
        "computed another result from the same numbers (do all machines have the same processors and libraries?). The "
        "run ends here, and this step is not saved. {}. Test the memory of these machines if it happens again",
        step.number, what, way_on());
  return Verdict::ends(RunEnd::kDrifted);
}

// The norm is the same on every rank, so that all decide alike. On a device it is read only where the device is read
// anyway.
bool ReplicaWatch::is_due(const StepView& step) const {
  if (parts_.freq > 0 && step.number % parts_.freq == 0) return true;
  if (parts_.checkpointer.saves() && parts_.read_steps.is_saved(step)) return true;
  const at::Tensor& norm = step.output.grad_norm;
  return (norm.is_cpu() || parts_.read_steps.contains(step)) && !std::isfinite(norm.item<float>());
}

std::string ReplicaWatch::way_on() const {
  const std::string newest = parts_.checkpointer.newest_good();
  if (newest.empty()) return "There is no checkpoint: the same command starts from the beginning";
  return "The same command resumes from " + newest + ", whose copies were compared before it was saved";
}

}  // namespace titan::train
