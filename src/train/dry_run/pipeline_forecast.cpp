#include "train/dry_run/pipeline_forecast.h"

#include "config/pipeline_plan.h"
#include "pipeline/timeline.h"

namespace titan::train {

std::vector<std::string> PipelineForecast::stages_of_rank(int rank) const {
  std::vector<std::string> out;
  for (std::size_t stage = 0; stage < modules.size(); ++stage)
    if (rank_of_stage[stage] == rank) out.push_back(pipeline::in_short(modules[stage]));
  return out;
}

PipelineForecast forecast_pipeline(const config::JobConfig& config, std::int64_t num_layers) {
  const auto plan = config::pipeline_plan(config, num_layers);
  return {.schedule = config.parallelism.pipeline_parallel_schedule,
          .modules = plan.stages,
          .rank_of_stage = plan.schedule.rank_of_stage,
          .microbatches = plan.schedule.num_microbatches,
          .bubble = pipeline::simulate(plan.schedule, {}).bubble};
}

}  // namespace titan::train
