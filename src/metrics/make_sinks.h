// The list of those who report a run's numbers. A new sink is a line in make_sinks.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/job_config.h"
#include "metrics/step_metrics.h"

namespace titan::metrics {

// In the order in which they hear of a step. `finished_steps`: the step that training resumes after, 0 for a fresh
// start. For rank 0, which reports for all; once, since the progress bar takes the log's place. `config` may end before
// the sinks. Not collective, and no file is touched before the first step ends.
std::vector<std::unique_ptr<MetricsSink>> make_sinks(const config::JobConfig& config, std::int64_t finished_steps);

}  // namespace titan::metrics
