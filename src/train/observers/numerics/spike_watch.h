// training.on_spike: what happens where the loss or the norm of the gradients lies far above what it was.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "distributed/parallel_dims.h"
#include "metrics/event_log.h"
#include "train/observers/numerics/spike_window.h"
#include "train/observers/read_steps.h"
#include "train/step/saved_value.h"
#include "train/step/step_observer.h"
#include "train/step/update_guard.h"

namespace titan::train {

// With "warn" a step is judged where it is read: steps cost nothing in between. With "skip" every step is judged before
// its update, on the device, for which its loss is summed over the ranks. What was found is said at the next step that
// is read, the step itself included. "ignore" needs no watch.
class SpikeWatch : public UpdateGuard, public StepObserver, public SavedValue {
 public:
  // A step's sum of losses over the tokens of all ranks, from this rank's part, which it may change; or of several
  // steps. Collective.
  using SumOverRanks = std::function<void(at::Tensor& losses)>;

  // `device`: that of losses and norms. `events` must outlive this.
  SpikeWatch(const config::Training& options, at::Device device, SumOverRanks sum, ReadSteps read_steps,
             metrics::EventLog& events);

  at::Tensor leaves_out(std::int64_t step, const StepInput& input, const StepOutput& output) override;
  std::optional<RunEnd> after_step(const FinishedStep& step) override;

  std::string key() const override { return "titan.spikes"; }
  Value value() const override { return window_.value(); }
  void restore(const Value* saved) override;

 private:
  // A step that nothing was said about yet.
  struct Seen {
    std::int64_t step;
    at::Tensor loss, norm;   // float32 0-d, with "warn"
    at::Tensor judged = {};  // float64 [7], with "skip": is_spike, then Judgement::numbers
  };
  at::Tensor judge(const at::Tensor& loss, const at::Tensor& norm);
  at::Tensor read();
  void report(const at::Tensor& judged) const;

  const config::Training& options_;
  bool skips_;
  SumOverRanks sum_;
  ReadSteps read_steps_;
  metrics::EventLog& events_;
  SpikeWindow window_;
  std::vector<Seen> seen_;
};

}  // namespace titan::train
