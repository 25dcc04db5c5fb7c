// The list of those who report a run's numbers. A new sink is a line in make_sinks.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/job_config.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

struct Reporter {
  int rank = 0;
  int world_size = 1;
};

// In the order in which they hear of a step. `finished_steps`: the step that training resumes after, 0 for a fresh
// start. Rank 0 reports for all; others log their lines, and write TensorBoard files where metrics.save_for_all_ranks asks
// for them. Once in a process, since the progress bar takes the log's place. `config` may end before the sinks. Not
// collective, and no file is touched before the first step ends.
std::vector<std::unique_ptr<MetricsSink>> make_sinks(const config::JobConfig& config, std::int64_t finished_steps,
                                                     Reporter reporter);

}  // namespace titan::metrics
