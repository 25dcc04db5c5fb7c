// training.on_nan: handles gradients, or weights to be saved, that are NaN or infinite.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.h"
#include "metrics/event_log.h"
#include "train/guests/numerics/nan_locator.h"
#include "train/guests/read_steps.h"
#include "train/step/step_guest.h"

namespace titan::train {

// Skips the update of a step whose gradient norm is not finite, except with "warn". The weights stay finite, and the
// cause can be located with the weights that led to it. On the host, the norm is read at every step. A device counts
// such steps itself, and the counts are read at steps that are read anyway (ReadSteps); with "stop" and "rollback" it
// skips every update from the first such step on.
//
// This guest comes before the checkpoints in the list: if a save is due, it checks the weights, too.
class DivergenceWatch : public StepGuest {
 public:
  // Goes back to a checkpoint after step `step`. Returns false, with the reason in the log, if it could not.
  // Collective.
  using RollBack = std::function<bool(std::int64_t step)>;

  // All references must outlive this.
  struct Parts {
    const config::JobConfig& config;
    checkpoint::Checkpointer& checkpointer;
    MetricsLog& log;  // logs the step that ends the run if it was not logged
    metrics::EventLog& events;
    ReadSteps read_steps;
    NanLocator locator;
    RollBack roll_back;  // for "rollback"
    bool judges_norm;    // false with float16, whose gradient scaler skips such steps itself
    bool norm_is_on_host;
  };
  explicit DivergenceWatch(Parts parts);

  at::Tensor before_update(const StepView& step) override;
  Verdict after_step(const StepView& step) override;

  // Saves the number of steps skipped in a row.
  std::string saved_key() const override { return "titan.left_out"; }
  Value saved() const override;
  void restore(const Value* saved) override;

 private:
  // Counts of bad steps since they were last read.
  struct Counts {
    std::int64_t first = 0;     // first step whose norm was not finite; 0 if none
    std::int64_t in_a_row = 0;  // up to the last step, including steps before the last read
    std::int64_t longest = 0;   // the most in a row
    std::int64_t number = 0;
  };
  // The step that on_nan must handle.
  struct Trouble {
    std::int64_t step = 0;  // 0 if none
    std::string what;       // "the norm of the gradients is nan"
    std::string where;      // describe()
    std::string spoilt;     // ranks_of_spoilt_weights()
    std::string text() const { return "step " + std::to_string(step) + ": " + what + "; " + where; }
  };
  bool is(const char* policy) const { return parts_.config.training.on_nan == policy; }
  at::Tensor veto_on_host(std::int64_t step, const StepInput& input, const at::Tensor& norm);
  at::Tensor veto_on_device(std::int64_t step, const StepInput& input, const at::Tensor& norm);
  std::string ranks_of_spoilt_weights(const NanReport& report) const;
  std::string advice(const StepView& step, const std::string& other) const;
  void read_device(const StepView& step);
  void forget();
  void locate_on_device(const StepView& now);
  Verdict act(const StepView& step);
  Verdict check_weights(const StepView& step);
  void check_loss(const StepView& step);
  Verdict report_skipped(const StepView& step);
  void warn();
  Verdict roll_back(const StepView& step);
  Verdict stop(const StepView& step, const std::string& other);

  Parts parts_;
  Counts counts_;
  at::Tensor on_device_;  // int64 [4]: Counts, if the norm is on a device
  Trouble trouble_;
  // Microbatches of the steps since the device was last read, the oldest first.
  std::deque<std::pair<std::int64_t, std::vector<Batch>>> recent_;
  std::int64_t total_skipped_ = 0;  // in this process
  std::int64_t first_step_ = 0;     // of this process
  bool has_warned_ = false;
  bool has_warned_of_loss_ = false;
};

}  // namespace titan::train
