#include "train/slow_first_step.h"

#include <spdlog/fmt/fmt.h>

#include "base/text.h"

namespace titan::train {
namespace {

std::string doing(const StepLook& look) {
  if (look.in_collective) return "it waits for other ranks, in a collective";
  if (look.phase == Phase::kData) return "it waits for data";
  if (look.phase == Phase::kOptimizer) return "it updates the weights";
  const std::string layer = look.progress.text();
  if (look.phase != Phase::kStep || layer.empty()) return "it is in phase " + std::string(name_of(look.phase));
  return "it computes the " + layer;
}

}  // namespace

std::optional<std::string> SlowFirstStep::look(const StepLook& look) {
  if (look.seconds < next_) return std::nullopt;
  while (next_ <= look.seconds) next_ *= 2;
  std::string line = fmt::format("step {} has taken {:.0f} s so far: {}", look.step, look.seconds, doing(look));
  if (const double share = look.progress.share(); share > 0) {
    const double step_seconds = look.seconds / share;
    const auto steps_left = static_cast<double>(last_step_ - look.step + 1);
    line += fmt::format(", {:.0f} % of the step are done. A step will take about {}, and the run {}", share * 100,
                        format_duration(step_seconds), format_duration(step_seconds * steps_left));
  }
  return line + ". " + advice_;
}

}  // namespace titan::train
