#include "train/guests/checkpointing.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/phase.h"
#include "base/process/signal.h"

namespace titan::train {

Verdict Checkpointing::after_step(const StepView& step) {
  const PhaseScope phase(Phase::kCheckpoint);
  const bool is_saved = save(step);
  if (step.input.stop && step.number < last_step_) return stop(step.number, is_saved);
  return Verdict::go_on();
}

// Saves if a save is due. The event's seconds are the time that training was blocked; with an async_mode, files are
// written after that.
bool Checkpointing::save(const StepView& step) {
  const auto begin = std::chrono::steady_clock::now();
  const bool is_saved =
      checkpointer_.save(static_cast<int>(step.number), static_cast<int>(last_step_), step.input.save_due);
  if (is_saved)
    events_.append("save", step.number, {{"seconds", seconds_between(begin, std::chrono::steady_clock::now())}});
  return is_saved;
}

void Checkpointing::finish(RunEnd /*end*/, std::int64_t /*finished_steps*/) {
  const PhaseScope phase(Phase::kCheckpoint);
  checkpointer_.finish();
}

// Ends the run after a stop request. The step whose data was already fetched is done, so no sample is lost.
Verdict Checkpointing::stop(std::int64_t step, bool is_saved) {
  const auto signal = stop_requested();
  const std::string why = signal ? signal_name(*signal) : "another rank was asked to stop";
  if (!checkpointer_.saves()) {
    if (speaks_for_all())
      spdlog::warn("stopped after step {} ({}); checkpoints are not enabled, nothing was saved", step, why);
    return Verdict::ends(RunEnd::kStoppedUnsaved);
  }
  if (!is_saved) {
    checkpointer_.save_full(static_cast<int>(step));
    events_.append("save", step);
  }
  checkpointer_.finish();  // its log lines come before the last one
  spdlog::info("stopped after step {} of {} ({}); saved. Start the same command again to go on", step, last_step_, why);
  return Verdict::ends(RunEnd::kStopped);
}

}  // namespace titan::train
