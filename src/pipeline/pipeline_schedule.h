// A pipeline schedule as data: what each rank does for each microbatch, in order. No torch.
//
// A schedule begins as an order of computation (make_schedule.h, schedule_csv.h). with_communication.h adds the
// messages and the gathers of parameters to it, check_schedule.h finds what is wrong with either.
#pragma once

#include <vector>

#include "pipeline/action.h"

namespace titan::pipeline {

// Says which rank has which stages.
enum class StageStyle {
  kLoop,  // rank r of P has r, P + r, 2P + r, ...
  kV,     // down the ranks and up again: rank r of P has r and 2P - 1 - r, so that the last rank has two neighbors
};

struct PipelineSchedule {
  int num_microbatches = 0;
  std::vector<int> rank_of_stage;         // of each stage
  std::vector<std::vector<Step>> orders;  // of each rank

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  int num_ranks() const { return static_cast<int>(orders.size()); }
};

// Returns the rank of each stage. kV needs num_stages == 2 * num_ranks.
std::vector<int> place_stages(int num_ranks, int num_stages, StageStyle style);

// Returns the stages of a rank, ascending.
std::vector<int> stages_of_rank(const PipelineSchedule& schedule, int rank);

// Returns the stage that an action's result goes to: the next for kForward, the one before for kBackward and
// kInputGradient; -1 if there is none.
int receiving_stage(const PipelineSchedule& schedule, const Action& action);

// Returns the stage whose result an action needs; -1 if there is none.
int giving_stage(const PipelineSchedule& schedule, const Action& action);

// True if both stages exist and different ranks have them. Stages on one rank hand their tensors on without a message.
bool is_message(const PipelineSchedule& schedule, int from_stage, int to_stage);

}  // namespace titan::pipeline
