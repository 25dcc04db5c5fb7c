#include "train/guests/checkpointing.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/common_error.h"
#include "base/process/phase.h"
#include "base/process/signal.h"

namespace titan::train {

Verdict Checkpointing::after_step(const StepView& step) {
  const PhaseScope phase(Phase::kCheckpoint);
  if (!step.input.stop || step.number >= parts_.last_step) {
    save(step);
    if (!std::exchange(has_reserved_, true)) parts_.checkpointer.reserve_memory();
    return Verdict::go_on();
  }
  if (step.input.record_failed) end_without_record(step);
  return stop(step);
}

// Saves if a save is due. The event's seconds are the time that training was blocked; with an async_mode, files are
// written after that.
void Checkpointing::save(const StepView& step) {
  const auto begin = std::chrono::steady_clock::now();
  const bool is_saved =
      parts_.checkpointer.save(static_cast<int>(step.number), static_cast<int>(parts_.last_step), step.input.save_due);
  if (is_saved) {
    parts_.events.append("save", step.number, {{"seconds", seconds_between(begin, std::chrono::steady_clock::now())}});
  } else if (!step.input.is_saving &&
             parts_.checkpointer.should_copy(static_cast<int>(step.number), static_cast<int>(parts_.last_step))) {
    copy_to_memory(step);
  }
}

// A copy that is due while a checkpoint is still being written is left out: training would wait for that.
void Checkpointing::copy_to_memory(const StepView& step) {
  const auto begin = std::chrono::steady_clock::now();
  parts_.checkpointer.copy_to_memory(static_cast<int>(step.number));
  parts_.events.append("memory_copy", step.number,
                       {{"seconds", seconds_between(begin, std::chrono::steady_clock::now())}});
}

// A run that diverged, or whose ranks hold different copies, keeps its copies in memory: the next start goes on from
// there.
void Checkpointing::finish(RunEnd end, std::int64_t /*finished_steps*/) {
  const PhaseScope phase(Phase::kCheckpoint);
  parts_.checkpointer.finish();
  if (end == RunEnd::kCompleted) parts_.checkpointer.remove_copies();
}

// Saves the last state of this process, and waits for it. Throws CheckpointError, whatever checkpoint.on_save_error is.
void Checkpointing::save_to_stop(const StepView& step) {
  const auto begin = std::chrono::steady_clock::now();
  const auto number = static_cast<int>(step.number);
  const bool is_due =
      step.input.save_due || parts_.checkpointer.should_save(number, static_cast<int>(parts_.last_step));
  parts_.checkpointer.save_full(number, is_due);
  parts_.checkpointer.finish();
  parts_.checkpointer.remove_copies();
  parts_.events.append("save", step.number, {{"seconds", seconds_between(begin, std::chrono::steady_clock::now())}});
}

// Ends the run after a stop request. The step whose data was already fetched is done, so no sample is lost.
Verdict Checkpointing::stop(const StepView& step) {
  const auto signal = stop_requested();
  const std::string why = signal ? signal_name(*signal) : "another rank was asked to stop";
  if (!parts_.checkpointer.saves()) {
    if (speaks_for_all())
      spdlog::warn("stopped after step {} ({}); checkpoints are not enabled, nothing was saved", step.number, why);
    return Verdict::ends(RunEnd::kStoppedUnsaved);
  }
  save_to_stop(step);
  spdlog::info("stopped after step {} of {} ({}); saved. Start the same command again to go on", step.number,
               parts_.last_step, why);
  return Verdict::ends(RunEnd::kStopped);
}

// Ends the run on all ranks alike.
void Checkpointing::end_without_record(const StepView& step) {
  const std::string failure = parts_.world.broadcast_bytes(parts_.metrics.record_failure(), 0);
  std::string state = "checkpoints are off, so nothing is saved";
  if (parts_.checkpointer.saves()) {
    try {
      save_to_stop(step);
      state = "the state after step " + std::to_string(step.number) + " is saved: the same command goes on from there";
    } catch (const CheckpointError& error) {
      state = "nor could the state be saved, so the same command goes on from the newest checkpoint before it: " +
              std::string(error.what());
    }
  }
  throw Error(common_error("the run ends after step " + std::to_string(step.number) +
                           ", because its rows cannot be written: " + failure + "; " + state),
              kExitFailed);
}

}  // namespace titan::train
