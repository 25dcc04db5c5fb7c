// Makes the sinks that report a run's metrics. A new sink is a line in make_sinks.cpp.
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

// Returns the sinks in the order in which they are called. `finished_steps`: the step that training resumes after, 0
// for a fresh start. Rank 0 reports for all ranks; other ranks log their lines, and write TensorBoard files with
// metrics.save_for_all_ranks. A sink whose files cannot be written ends with a warning; if that is metrics.jsonl's, its
// failure() says why. Call once per process, because the progress bar replaces the log's sinks. `config` may
// end before the sinks. Not collective; no file is touched before the first step ends.
std::vector<std::unique_ptr<MetricsSink>> make_sinks(const config::JobConfig& config, std::int64_t finished_steps,
                                                     Reporter reporter);

}  // namespace titan::metrics
