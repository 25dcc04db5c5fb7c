// Makes log lines about the progress of a run's first step while it is slow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/process/phase.h"
#include "base/process/step_work.h"

namespace titan::train {

// Progress of the first step at one moment.
struct StepLook {
  std::int64_t step = 0;  // under way
  double seconds = 0;     // since it began
  Phase phase = Phase::kIdle;
  bool in_collective = false;
  StepProgress progress = {};
};

class SlowFirstStep {
 public:
  // `last_step`: training.steps. `advice`: what to change for shorter steps.
  SlowFirstStep(std::int64_t last_step, std::string advice) : last_step_(last_step), advice_(std::move(advice)) {}

  // Returns a line after ten seconds, and another each time the elapsed time has doubled, since the estimate is better
  // then; else nullopt.
  std::optional<std::string> look(const StepLook& look);

 private:
  std::int64_t last_step_;
  std::string advice_;
  double next_ = 10;  // seconds
};

}  // namespace titan::train
