// training.on_spike: handles a loss or gradient norm far above the values before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "distributed/parallel_dims.h"
#include "metrics/event_log.h"
#include "train/guests/numerics/spike_window.h"
#include "train/guests/read_steps.h"
#include "train/step/step_guest.h"

namespace titan::train {

// With "warn", steps are judged when they are read (ReadSteps), so the steps in between cost nothing. With "skip",
// every step is judged before its update, on the device, and its loss is summed over the ranks for that. Spikes are
// reported at the next step that is read, which may be the step itself. "ignore" needs no watch.
class SpikeWatch : public StepGuest {
 public:
  // Sums the losses of one or several steps over the ranks, in place: from this rank's part to the sum over the tokens
  // of all ranks. Collective.
  using SumOverRanks = std::function<void(at::Tensor& losses)>;

  // `device`: device of the losses and norms. `events` must outlive this.
  SpikeWatch(const config::Training& options, at::Device device, SumOverRanks sum, ReadSteps read_steps,
             metrics::EventLog& events);

  at::Tensor before_update(const StepView& step) override;
  Verdict after_step(const StepView& step) override;

  std::string saved_key() const override { return "titan.spikes"; }
  Value saved() const override { return window_.value(); }
  void restore(const Value* saved) override;

 private:
  // A step that is not reported yet.
  struct Seen {
    std::int64_t step;
    at::Tensor loss, norm;   // float32 0-d, read with "warn" only
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
