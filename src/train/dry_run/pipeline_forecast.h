// Says what a dry run knows of a pipeline besides the memory of its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "pipeline/stage_split.h"

namespace titan::train {

struct PipelineForecast {
  std::string schedule;                         // parallelism.pipeline_parallel_schedule
  std::vector<pipeline::StageModules> modules;  // of each stage
  std::vector<int> rank_of_stage;               // of the pipeline
  std::int64_t microbatches = 1;                // of each local batch
  // 0 to 1: the share of a step in which ranks wait, if all stages and both halves of a backward take the time of a
  // forward (pipeline/timeline.h).
  double bubble = 0;

  // Returns "tok_embeddings, layers.0-3" for each stage that a rank has.
  std::vector<std::string> stages_of_rank(int rank) const;
};

// Throws ConfigError or DataError as config::pipeline_plan() does.
PipelineForecast forecast_pipeline(const config::JobConfig& config, std::int64_t num_layers);

}  // namespace titan::train
