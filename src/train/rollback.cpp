#include "train/rollback.h"

#include <spdlog/spdlog.h>

#include "base/log.h"
#include "base/process/phase.h"

namespace titan::train {

bool Rollback::run(std::int64_t step) {
  const PhaseScope phase(Phase::kLoad);
  const auto good = parts_.checkpointer.roll_back();
  if (!good) {
    if (speaks_for_all())
      spdlog::error("there is no checkpoint to go back to yet; a smaller checkpoint.interval makes one sooner");
    return false;
  }
  const int time = ++times_[*good];
  if (time > kMostToOne) {
    if (speaks_for_all()) spdlog::error("the run went back to step {} {} times; giving up", *good, kMostToOne);
    return false;
  }
  forget_after(step);
  if (speaks_for_all())
    spdlog::warn(
        "back at step {} of {}, as training.on_nan = \"rollback\" asks (time {} of {} to that checkpoint); continuing "
        "with the data after step {}",
        *good, step, time, kMostToOne, step);
  return true;
}

bool Rollback::run_again(std::int64_t step, const std::function<bool(std::int64_t)>& accepts) {
  const PhaseScope phase(Phase::kLoad);
  const auto good = parts_.checkpointer.roll_back({.with_data = true, .accepts = accepts});
  if (!good) {
    if (speaks_for_all()) spdlog::error("there is no good checkpoint to go back to");
    return false;
  }
  forget_after(step);
  if (speaks_for_all())
    spdlog::warn("back at step {} of {}: the steps after it run again, on the same data", *good, step);
  return true;
}

void Rollback::forget_after(std::int64_t step) {
  parts_.metrics.roll_back(parts_.state.step);
  parts_.events.append("rollback", parts_.state.step, {{"from", step}});
  if (parts_.validator) parts_.validator->forget_after(parts_.state.step);
}

}  // namespace titan::train
