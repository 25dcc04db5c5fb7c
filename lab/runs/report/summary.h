// Summarizes a run in a few numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "config/job_config.h"
#include "lab/runs/events.h"
#include "lab/runs/metrics_file.h"

namespace titan::runs {

// Returns an object with these members, without the unknown ones: state ("completed", "stopped (...)", "diverged",
// "drifted" (ranks held different copies), "running, or ended without reporting an error"), steps, of_steps
// (training.steps), loss, best_loss, best_loss_step, validation_loss, best_validation_loss, best_validation_step,
// tokens, hours (from the first row to the last, including the time between a stop and a resume), tokens_per_second
// (median over rows), step_seconds (median over rows), memory_peak_bytes, starts, saves, goodput_percent, scores. The
// last has, for each score of evaluation.jsonl, an object with its name ("arc_easy/acc"), last, best and best_step. The
// best acc and acc_norm is the highest, that of all other scores the lowest.
nlohmann::ordered_json summary_of(const RunMetrics& metrics, const std::vector<Event>& events,
                                  const std::optional<config::JobConfig>& config);

}  // namespace titan::runs
