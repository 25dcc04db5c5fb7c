#include "distributed/flight/slow_phase.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

#include "base/process/step_work.h"
#include "distributed/flight/flight_recorder.h"

namespace titan::dist {
namespace {

constexpr auto kPeriodOfLooks = std::chrono::seconds(1);

bool is_watched(Phase phase) {
  return phase == Phase::kLoad || phase == Phase::kData || phase == Phase::kStep || phase == Phase::kOptimizer ||
         phase == Phase::kDevice || phase == Phase::kCheckpoint;
}

PhaseLook look_at_process() {
  const PhaseLog& phases = phase_log();
  FlightRecorder& recorder = flight_recorder();
  const Phase phase = phases.current();
  return {phase, phases.step(), std::min(phases.seconds_in_current(), recorder.seconds_since_progress()),
          recorder.holds_training_thread(), step_work().of_pipeline(phase)};
}

}  // namespace

double SlowPhases::limit_of(const PhaseLook& look) const {
  const double limit = look.step <= 1 ? std::max(first_, limit_) : limit_;
  return std::max(limit, 2 * longest_[static_cast<std::size_t>(look.phase)]);
}

std::optional<std::string> SlowPhases::look(const PhaseLook& look) {
  const bool is_same = look.phase == last_.phase && look.step == last_.step && look.seconds >= last_.seconds;
  if (!is_same) is_said_ = false;
  last_ = look;
  double& longest = longest_[static_cast<std::size_t>(look.phase)];
  if (is_said_) longest = std::max(longest, look.seconds);
  if (is_said_ || look.in_collective || !is_watched(look.phase) || look.seconds < limit_of(look)) return std::nullopt;
  is_said_ = true;
  longest = std::max(longest, look.seconds);
  return fmt::format("has been in {} for {:.0f} s{}{}, and in no collective", name_of(look.phase), look.seconds,
                     look.step > 0 ? fmt::format(" at step {}", look.step) : "",
                     look.work.empty() ? "" : " (" + look.work + ")");
}

SlowPhaseWatch::SlowPhaseWatch(SlowPhases phases, std::function<void(const std::string&)> say)
    : phases_(phases), say_(std::move(say)), ticker_("watches for slow phases", kPeriodOfLooks, [this] {
        if (const auto said = phases_.look(look_at_process())) say_(*said);
      }) {}

}  // namespace titan::dist
