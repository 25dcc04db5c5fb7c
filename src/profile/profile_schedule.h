// Decides which steps a profile records: torch.profiler.schedule, with the cycles of TorchTitan.
#pragma once

#include <cstdint>

#include "config/job_config.h"

namespace titan::profile {

enum class Action {
  kNone,
  kWarmUp,  // prepares the profiler, so that its first costs are over before anything counts
  kRecord,
  kRecordAndSave,  // the last step of a cycle
};

// Cycles of profile_freq steps: the last profiler_active of each are recorded, the profiler_warmup before them warm up.
class Schedule {
 public:
  // Throws InternalError if warm-up and recorded steps do not fit into a cycle: config::validate() refuses that.
  explicit Schedule(const config::Profiling& profiling);

  // Returns the action for a 1-based step of the run: with the defaults 7 to 9 warm up and 10 is recorded, then 17 to
  // 19 and 20. A resumed run is at the same place of its cycle as an uninterrupted one.
  Action action_of(std::int64_t step) const;

 private:
  std::int64_t cycle_, warm_up_, active_;  // steps
};

}  // namespace titan::profile
