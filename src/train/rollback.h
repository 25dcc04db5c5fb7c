// training.on_nan = "rollback": returns to the newest good checkpoint in the running process. The data continues after
// the bad batches.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "checkpoint/checkpointer.h"
#include "metrics/event_log.h"
#include "metrics/metrics_processor.h"
#include "train/guests/validator.h"
#include "train/train_state.h"

namespace titan::train {

class Rollback {
 public:
  // All must outlive this.
  struct Parts {
    checkpoint::Checkpointer& checkpointer;
    const TrainState& state;
    metrics::MetricsProcessor& metrics;
    metrics::EventLog& events;
    Validator* validator;  // null without [validation]
  };
  explicit Rollback(Parts parts) : parts_(std::move(parts)) {}

  // Maximum number of rollbacks to one checkpoint.
  static constexpr int kMostToOne = 3;

  // Restores weights, optimizer, schedule, step count and the histories of metrics from the newest good checkpoint,
  // after step `step`; the position in the data stays. Returns false, with the reason in the log, without a checkpoint
  // or after kMostToOne rollbacks to it. Collective. Throws as Checkpointer::roll_back().
  bool run(std::int64_t step);

 private:
  Parts parts_;
  std::map<int, int> times_;  // by the checkpoint's step
};

}  // namespace titan::train
