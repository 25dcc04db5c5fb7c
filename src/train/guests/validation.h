// Runs the validation passes that are due, and logs the prompt samples after each pass and at the end.
#pragma once

#include "base/process/phase.h"
#include "train/guests/prompt_samples.h"
#include "train/guests/validator.h"
#include "train/step/step_guest.h"

namespace titan::train {

class Validation : public StepGuest {
 public:
  // Either may be null; both must outlive this.
  Validation(Validator* validator, PromptSamples* samples) : validator_(validator), samples_(samples) {}

  Verdict after_step(const StepView& step) override {
    const PhaseScope phase(Phase::kValidation);
    if (validator_ && validator_->run_if_due(step.number) && samples_) samples_->log(step.number);
    return Verdict::go_on();
  }
  void finish(RunEnd end, std::int64_t finished_steps) override {
    const PhaseScope phase(Phase::kValidation);
    if (samples_ && end == RunEnd::kCompleted) samples_->log(finished_steps);
  }

 private:
  Validator* validator_;
  PromptSamples* samples_;
};

}  // namespace titan::train
