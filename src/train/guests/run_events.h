// Appends the start and the end of a run to events.jsonl. Other parts append their own events.
#pragma once

#include <cstdint>
#include <optional>

#include "base/process/signal.h"
#include "metrics/event_log.h"
#include "train/step/step_guest.h"

namespace titan::train {

class RunEvents : public StepGuest {
 public:
  // `finished_steps`: live count of the run. It and `events` must outlive this.
  RunEvents(metrics::EventLog& events, const std::int64_t& finished_steps, int world_size)
      : events_(events), finished_steps_(finished_steps), world_size_(world_size) {}

  void before_step() override {
    if (first_step_) return;
    first_step_ = finished_steps_;
    events_.append(*first_step_ == 0 ? "start" : "resume", *first_step_, {{"ranks", world_size_}});
  }

  Verdict after_step(const StepView& /*step*/) override {
    events_.begin(/*is_fresh=*/*first_step_ == 0);
    return Verdict::go_on();
  }

  void finish(RunEnd end, std::int64_t finished_steps) override {
    if (!first_step_) return;  // nothing was left to train
    nlohmann::ordered_json details = nlohmann::ordered_json::object();
    if (const auto signal = stop_requested()) details["signal"] = signal_name(*signal);
    if (end == RunEnd::kStoppedUnsaved) details["saved"] = false;
    events_.append(name_of(end), finished_steps, details);
  }

 private:
  static const char* name_of(RunEnd end) {
    if (end == RunEnd::kDiverged) return "diverged";
    if (end == RunEnd::kDrifted) return "drifted";
    return end == RunEnd::kCompleted ? "end" : "stop";
  }

  metrics::EventLog& events_;
  const std::int64_t& finished_steps_;
  int world_size_;
  std::optional<std::int64_t> first_step_;
};

}  // namespace titan::train
