// Ends the run if ranks hold different copies of what must be equal, before such a state is saved.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "checkpoint/checkpointer.h"
#include "metrics/event_log.h"
#include "train/guests/numerics/replica_check.h"
#include "train/guests/read_steps.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Compares the copies before each save, at the steps of debug.checksum_freq, and at a step whose gradients are not
// finite: the cause may be a changed bit, and not the learning rate.
//
// This guest comes before those that judge gradients and those that save.
class ReplicaWatch : public StepGuest {
 public:
  // All references must outlive this.
  struct Parts {
    ReplicaCheck check;
    checkpoint::Checkpointer& checkpointer;
    metrics::EventLog& events;
    ReadSteps read_steps;
    std::int64_t freq;  // debug.checksum_freq
  };
  explicit ReplicaWatch(Parts parts) : parts_(std::move(parts)) {}

  Verdict after_step(const StepView& step) override;

 private:
  bool is_due(const StepView& step) const;
  std::string way_on() const;

  Parts parts_;
};

}  // namespace titan::train
