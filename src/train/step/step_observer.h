// Who takes part in the train loop beside the step itself: the log, validation, checkpoints and whatever else looks at
// finished steps. run_parts.cpp has the list; a new observer is a file and a line there.
#pragma once

#include <cstdint>
#include <optional>

#include "train/step/train_step.h"

namespace titan::train {

enum class RunEnd {
  kCompleted,       // also where nothing was left to do
  kStopped,         // by a signal, early; a checkpoint holds the state
  kStoppedUnsaved,  // the same with checkpoints off
  kDiverged,        // training.on_nan, and the gradients were NaN or infinite
  kRolledBack,      // not an end: the run is back at an earlier step, and goes on from there
};

struct FinishedStep {
  std::int64_t number;  // 1-based
  const StepInput& input;
  const StepOutput& output;
};

// Every rank has the same observers, and calls them in the order of the list: any of these may be collective. What they
// throw ends the run.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Before the step's data is fetched.
  virtual void before_step() {}

  // After the optimizer. A result ends the training with it, or with kRolledBack goes on from an earlier step that the
  // observer has brought back, and observers further down the list do not see the step.
  // All ranks give the same one.
  virtual std::optional<RunEnd> after_step(const FinishedStep& /*step*/) { return std::nullopt; }

  // Once, after the last step, however the training ends but by an exception.
  virtual void finish(RunEnd /*end*/, std::int64_t /*finished_steps*/) {}
};

}  // namespace titan::train
