// A run in a few numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "config/job_config.h"
#include "lab/runs/events.h"
#include "lab/runs/metrics_file.h"

namespace titan::runs {

// Members, of which those that are not known are left out: state ("completed", "stopped by SIGTERM", "diverged",
// "running or ended without a word"), steps, of_steps (training.steps), loss, best_loss, best_loss_step,
// validation_loss, best_validation_loss, best_validation_step, tokens, hours (from the first row to the last, the time
// between a stop and a resume among them), tokens_per_second (the median of the rows), step_seconds (the same),
// memory_peak_bytes, starts, saves, goodput_percent.
nlohmann::ordered_json summary_of(const RunMetrics& metrics, const std::vector<Event>& events,
                                  const std::optional<config::JobConfig>& config);

}  // namespace titan::runs
