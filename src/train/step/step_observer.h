// Interface for everything that runs around a step: logging, validation, checkpoints. run_parts.cpp has the list of
// observers; a new one is a file and a line there.
#pragma once

#include <cstdint>
#include <optional>

#include "train/step/train_step.h"

namespace titan::train {

enum class RunEnd {
  kCompleted,       // also if nothing was left to do
  kStopped,         // by a signal, early; a checkpoint holds the state
  kStoppedUnsaved,  // the same with checkpoints off
  kDiverged,        // gradients were NaN or infinite (training.on_nan)
  kRolledBack,      // not an end: the run is back at an earlier step and continues
};

struct FinishedStep {
  std::int64_t number;  // 1-based
  const StepInput& input;
  const StepOutput& output;
};

// Every rank has the same observers and calls them in the same order, so these functions may be collective. An
// exception ends the run.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Called before the step's data is fetched.
  virtual void before_step() {}

  // Called after the optimizer. A result ends the training, except kRolledBack: the observer has restored an earlier
  // step, and training continues from there. Either way, observers further down the list do not see the step. All
  // ranks must return the same.
  virtual std::optional<RunEnd> after_step(const FinishedStep& /*step*/) { return std::nullopt; }

  // Called once after the last step, unless training ends by an exception.
  virtual void finish(RunEnd /*end*/, std::int64_t /*finished_steps*/) {}
};

}  // namespace titan::train
