// Reports that this process has been in one phase for longer than the collective timeout without being blocked in a
// collective: it waits for data or a disk, for example. The run continues, unless other ranks give up waiting for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/process/phase.h"
#include "base/threads/ticker.h"

namespace titan::dist {

// A sample of the process's phase.
struct PhaseLook {
  Phase phase = Phase::kIdle;
  std::int64_t step = 0;  // under way; 0 before the first
  double seconds = 0;     // since the phase began, or since the last collective within it
  bool in_collective = false;
  std::string work = {};  // in a pipeline
};

// Decides when to report. Watches the phases that wait for something (load, data, device, checkpoint) or do one
// step's work (step, optimizer), but not validation: it takes as long as the user configured.
class SlowPhases {
 public:
  // Limits in seconds; `first` up to the end of the first step.
  SlowPhases(double first, double limit) : first_(first), limit_(limit) {}

  // Returns the message, once for each time that a phase is slow; otherwise nullopt. After a phase was reported, it
  // counts as slow only from twice its longest time on, so that steps that are always slow are not reported again.
  std::optional<std::string> look(const PhaseLook& look);

 private:
  double limit_of(const PhaseLook& look) const;
  double first_, limit_;
  PhaseLook last_;
  bool is_said_ = false;                      // the current occurrence was reported
  std::array<double, kNumPhases> longest_{};  // seconds, of reported phases
};

// Checks every second, on its own thread, while alive. `say` runs on that thread.
class SlowPhaseWatch {
 public:
  SlowPhaseWatch(SlowPhases phases, std::function<void(const std::string&)> say);

 private:
  SlowPhases phases_;  // used on the ticker's thread
  std::function<void(const std::string&)> say_;
  Ticker ticker_;  // destroyed first
};

}  // namespace titan::dist
