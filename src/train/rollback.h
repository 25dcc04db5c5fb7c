// Returns to the newest good checkpoint in the running process: for training.on_nan = "rollback", after which the data
// continues after the bad batches, and after a fault of memory, after which the same steps run again.
#pragma once

#include <cstdint>
#include <functional>
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

  // Restores everything from the newest good checkpoint that `accepts` does not refuse once it is loaded, also the
  // position in the data, after step `step`. Returns false, with the reason in the log, if there is none. Collective.
  // Throws as Checkpointer::roll_back().
  bool run_again(std::int64_t step, const std::function<bool(std::int64_t step)>& accepts);

 private:
  void forget_after(std::int64_t step);

  Parts parts_;
  std::map<int, int> times_;  // by the checkpoint's step
};

}  // namespace titan::train
