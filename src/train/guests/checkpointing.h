// Saves checkpoints, and copies of the state in memory, when they are due. Ends a run that was asked to stop, or that
// cannot write its rows any more, after saving.
#pragma once

#include <cstdint>

#include "checkpoint/checkpointer.h"
#include "distributed/process_group.h"
#include "metrics/event_log.h"
#include "metrics/metrics_processor.h"
#include "train/step/step_guest.h"

namespace titan::train {

class Checkpointing : public StepGuest {
 public:
  // All references must outlive this.
  struct Parts {
    checkpoint::Checkpointer& checkpointer;
    metrics::EventLog& events;  // gets an entry for every save, and for every copy
    const metrics::MetricsProcessor& metrics;
    dist::ProcessGroup& world;
    std::int64_t last_step;  // training.steps
  };
  explicit Checkpointing(const Parts& parts) : parts_(parts) {}

  // Throws CheckpointError, and Error if the rows cannot be written.
  Verdict after_step(const StepView& step) override;
  void finish(RunEnd end, std::int64_t finished_steps) override;

 private:
  void save(const StepView& step);
  void copy_to_memory(const StepView& step);
  void save_to_stop(const StepView& step);
  Verdict stop(const StepView& step);
  [[noreturn]] void end_without_record(const StepView& step);

  Parts parts_;
  bool has_reserved_ = false;  // the memory for saves beside training, after the first step of this process
};

}  // namespace titan::train
