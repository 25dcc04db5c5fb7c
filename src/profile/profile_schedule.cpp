#include "profile/profile_schedule.h"

#include "base/error.h"

namespace titan::profile {

Schedule::Schedule(const config::Profiling& profiling)
    : cycle_(profiling.profile_freq), warm_up_(profiling.profiler_warmup), active_(profiling.profiler_active) {
  TITAN_CHECK(active_ >= 1 && warm_up_ >= 0 && active_ + warm_up_ <= cycle_, "a schedule that does not fit its cycle");
}

Action Schedule::action_of(std::int64_t step) const {
  const std::int64_t place = (step - 1) % cycle_;
  if (place == cycle_ - 1) return Action::kRecordAndSave;
  if (place >= cycle_ - active_) return Action::kRecord;
  if (place >= cycle_ - active_ - warm_up_) return Action::kWarmUp;
  return Action::kNone;
}

}  // namespace titan::profile
