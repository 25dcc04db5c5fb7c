// Steps at which a rank waits for its device anyway. Guests read values from the device only at these steps.
#pragma once

#include <cstdint>

#include "checkpoint/checkpointer.h"
#include "train/guests/metrics_log.h"

namespace titan::train {

class ReadSteps {
 public:
  // Both references must outlive this. `last_step`: training.steps.
  ReadSteps(const MetricsLog& log, const checkpoint::Checkpointer& checkpointer, std::int64_t last_step)
      : log_(log), checkpointer_(checkpointer), last_step_(last_step) {}

  // True if the device is read after `step`. The same on every rank.
  bool contains(const StepView& step) const {
    return log_.is_logged(step.number) || is_saved(step) || step.number == last_step_;
  }
  // True if a save follows `step`, also because the run stops after it, or a copy of the state in memory.
  bool is_saved(const StepView& step) const {
    return step.input.save_due || step.input.stop ||
           checkpointer_.should_save(static_cast<int>(step.number), static_cast<int>(last_step_)) || is_copied(step);
  }
  // True if the state of `step` is copied to memory.
  bool is_copied(const StepView& step) const {
    return !step.input.is_saving &&
           checkpointer_.should_copy(static_cast<int>(step.number), static_cast<int>(last_step_));
  }

 private:
  const MetricsLog& log_;
  const checkpoint::Checkpointer& checkpointer_;
  std::int64_t last_step_;
};

}  // namespace titan::train
