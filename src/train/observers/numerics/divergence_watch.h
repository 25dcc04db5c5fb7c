// training.on_nan: what happens when the gradients, or the weights to be saved, are NaN or infinite.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.h"
#include "metrics/event_log.h"
#include "train/observers/numerics/nan_locator.h"
#include "train/observers/read_steps.h"
#include "train/step/saved_value.h"
#include "train/step/step_observer.h"
#include "train/step/update_guard.h"

namespace titan::train {

// But for "warn", the update of a step whose norm is not finite is left out, so the weights stay numbers, and what went
// wrong can be looked for with the weights that it happened to. On the host the norm is read at every step. A device
// keeps count of such steps by itself, and is asked at the steps that are read anyway; with "stop" and "rollback" it
// leaves out every update from the first such step on.
//
// It comes before the checkpoints in the list of observers: where one is due, the weights are looked at too.
class DivergenceWatch : public UpdateGuard, public StepObserver, public SavedValue {
 public:
  // Goes back to a checkpoint after step `step`, and says whether it did: why not is in the log then. Collective.
  using RollBack = std::function<bool(std::int64_t step)>;

  // All references must outlive this.
  struct Parts {
    const config::JobConfig& config;
    checkpoint::Checkpointer& checkpointer;
    MetricsLog& log;  // reports the step that ends the run, where it was not logged
    metrics::EventLog& events;
    ReadSteps read_steps;
    NanLocator locator;
    RollBack roll_back;  // for "rollback"
    bool judges_norm;    // not with float16, whose gradient scaler leaves such steps out by itself
    bool norm_is_on_host;
  };
  explicit DivergenceWatch(Parts parts);

  at::Tensor leaves_out(std::int64_t step, const StepInput& input, const StepOutput& output) override;
  std::optional<RunEnd> after_step(const FinishedStep& step) override;

  // The steps left out in a row.
  std::string key() const override { return "titan.left_out"; }
  Value value() const override;
  void restore(const Value* saved) override;

 private:
  // Since the last look at them.
  struct Counts {
    std::int64_t first = 0;     // step whose norm was not finite; 0: none
    std::int64_t in_a_row = 0;  // up to the last step, also before the last look
    std::int64_t longest = 0;   // the most in a row
    std::int64_t number = 0;
  };
  // The step that something is to be done about.
  struct Trouble {
    std::int64_t step = 0;  // 0: none
    std::string what;       // "the norm of the gradients is nan"
    std::string where;      // describe()
    std::string text() const { return "step " + std::to_string(step) + ": " + what + "; " + where; }
  };
  bool is(const char* policy) const { return parts_.config.training.on_nan == policy; }
  at::Tensor leaves_out_on_host(std::int64_t step, const StepInput& input, const at::Tensor& norm);
  at::Tensor leaves_out_on_device(std::int64_t step, const StepInput& input, const at::Tensor& norm);
  void read_device(const FinishedStep& step);
  void forget();
  void locate_on_device(const FinishedStep& now);
  std::optional<RunEnd> act(const FinishedStep& step);
  std::optional<RunEnd> check_weights(const FinishedStep& step);
  void check_loss(const FinishedStep& step);
  std::optional<RunEnd> report_left_out(const FinishedStep& step);
  void warn();
  RunEnd roll_back(const FinishedStep& step);
  RunEnd stop(const FinishedStep& step, const std::string& advice);

  Parts parts_;
  Counts counts_;
  at::Tensor on_device_;  // int64 [4]: Counts, where the norm is on a device
  Trouble trouble_;
  // The microbatches of the steps since the last look at the device, the oldest first.
  std::deque<std::pair<std::int64_t, std::vector<Batch>>> recent_;
  std::int64_t total_left_out_ = 0;  // of this process
  bool has_warned_ = false;
  bool has_warned_of_loss_ = false;
};

}  // namespace titan::train
