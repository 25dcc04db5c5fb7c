#include "pipeline/pipeline_schedule.h"

#include "base/error.h"

namespace titan::pipeline {

std::vector<int> place_stages(int num_ranks, int num_stages, StageStyle style) {
  TITAN_CHECK(style == StageStyle::kLoop || num_stages == 2 * num_ranks, "the V style needs two stages per rank");
  std::vector<int> ranks(static_cast<std::size_t>(num_stages));
  for (int stage = 0; stage < num_stages; ++stage)
    ranks[stage] = style == StageStyle::kV && stage >= num_ranks ? num_stages - 1 - stage : stage % num_ranks;
  return ranks;
}

std::vector<int> stages_of_rank(const PipelineSchedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.num_stages(); ++stage)
    if (schedule.rank_of_stage[stage] == rank) stages.push_back(stage);
  return stages;
}

int receiving_stage(const PipelineSchedule& schedule, const Action& action) {
  if (action.kind == Kind::kForward) return action.stage + 1 < schedule.num_stages() ? action.stage + 1 : -1;
  return makes_input_gradient(action.kind) ? action.stage - 1 : -1;
}

int giving_stage(const PipelineSchedule& schedule, const Action& action) {
  if (action.kind == Kind::kForward) return action.stage - 1;
  if (makes_input_gradient(action.kind)) return action.stage + 1 < schedule.num_stages() ? action.stage + 1 : -1;
  return -1;
}

bool is_message(const PipelineSchedule& schedule, int from_stage, int to_stage) {
  if (from_stage < 0 || to_stage < 0) return false;
  return schedule.rank_of_stage[from_stage] != schedule.rank_of_stage[to_stage];
}

}  // namespace titan::pipeline
