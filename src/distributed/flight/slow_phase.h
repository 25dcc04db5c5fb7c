// Says when this process has been in one phase for longer than a collective may take, while no collective holds it: it
// waits for its data or a disk, say. The run goes on, unless others give up waiting for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/process/phase.h"
#include "base/process/ticker.h"

namespace titan::dist {

// What one look at the process finds.
struct PhaseLook {
  Phase phase = Phase::kIdle;
  std::int64_t step = 0;  // under way; 0 before the first
  double seconds = 0;     // since the phase began, or since the last collective within it
  bool in_collective = false;
};

// When to speak. Of the phases that are waits for something (load, data, checkpoint) or one step's work (step,
// optimizer): a validation is as long as it was asked to be.
class SlowPhases {
 public:
  // Limits in seconds; `first` up to the end of the first step.
  SlowPhases(double first, double limit) : first_(first), limit_(limit) {}

  // What to say, once for each time that a phase is slow. A phase that went on after all is slow from twice its longest
  // time on: a step that takes its time is not news twice.
  std::optional<std::string> look(const PhaseLook& look);

 private:
  double limit_of(const PhaseLook& look) const;
  double first_, limit_;
  PhaseLook last_;
  bool is_said_ = false;                      // of the episode under way
  std::array<double, kNumPhases> longest_{};  // seconds, of those that were said
};

// Looks every second, on a thread of its own, while it lives. `say` runs there.
class SlowPhaseWatch {
 public:
  SlowPhaseWatch(SlowPhases phases, std::function<void(const std::string&)> say);

 private:
  SlowPhases phases_;  // of the ticker's thread
  std::function<void(const std::string&)> say_;
  Ticker ticker_;  // the first to end
};

}  // namespace titan::dist
