// training.on_nan = "rollback": back to the newest good checkpoint in the running process, while the data goes on behind
// the batches that were no good.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "checkpoint/checkpointer.h"
#include "metrics/event_log.h"
#include "metrics/metrics_processor.h"
#include "train/observers/validator.h"
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

  // How often one checkpoint is gone back to: other batches did not help.
  static constexpr int kMostToOne = 3;

  // After step `step`: weights, optimizer, schedule and the count of steps become those of the newest good checkpoint,
  // and so do the histories of metrics; the position in the data stays. False, with the reason in the log, where no
  // checkpoint is there or it was gone back to kMostToOne times. Collective. Throws as Checkpointer::roll_back().
  bool run(std::int64_t step);

 private:
  Parts parts_;
  std::map<int, int> times_;  // by the checkpoint's step
};

}  // namespace titan::train
