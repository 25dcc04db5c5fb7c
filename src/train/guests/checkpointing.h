// Saves checkpoints when they are due, and ends a run that was asked to stop, after saving.
#pragma once

#include <cstdint>

#include "checkpoint/checkpointer.h"
#include "metrics/event_log.h"
#include "train/step/step_guest.h"

namespace titan::train {

class Checkpointing : public StepGuest {
 public:
  // `events` gets an entry for every save. It and `checkpointer` must outlive this. `last_step`: training.steps.
  Checkpointing(checkpoint::Checkpointer& checkpointer, metrics::EventLog& events, std::int64_t last_step)
      : checkpointer_(checkpointer), events_(events), last_step_(last_step) {}

  // Throws CheckpointError.
  Verdict after_step(const StepView& step) override;
  void finish(RunEnd end, std::int64_t finished_steps) override;

 private:
  bool save(const StepView& step);
  Verdict stop(std::int64_t step, bool is_saved);

  checkpoint::Checkpointer& checkpointer_;
  metrics::EventLog& events_;
  std::int64_t last_step_;
};

}  // namespace titan::train
