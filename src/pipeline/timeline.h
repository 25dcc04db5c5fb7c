// Predicts when each step of a schedule runs, and what its ranks keep in memory. No torch.
#pragma once

#include <vector>

#include "pipeline/pipeline_schedule.h"

namespace titan::pipeline {

// The time of each kind of action in one stage, in any unit; a full backward takes both gradients' time. Messages take
// none.
struct Costs {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;

  // Returns 0 for what does not compute.
  double of(const Action& action) const;

  // Returns the sum of a pair: overlapping hides its communication, not its computation.
  double of(const Step& step) const;
};

struct TimedStep {
  std::size_t index = 0;  // in the rank's order
  double begin = 0, end = 0;
};

struct RankTimeline {
  std::vector<TimedStep> steps;  // those that compute
  double busy = 0;
  double idle_between = 0;  // waits after the rank's first step and before the end of its last one
};

struct Timeline {
  std::vector<RankTimeline> ranks;
  double makespan = 0;  // from the first step of any rank to the end of the last
  double bubble = 0;    // 0 to 1: the share of the makespan, over all ranks, in which they wait
};

// Runs the schedule with these costs: each step begins as soon as its rank and its inputs are there. The computation
// must have no fault (check_schedule.h).
Timeline simulate(const PipelineSchedule& schedule, const Costs& costs);

// The most that one rank has in memory at once, counted in microbatches of one stage.
struct RankMemory {
  int activations = 0;     // of a forward, until its kBackward or kWeightGradient ends
  int between_halves = 0;  // of these, between kInputGradient and kWeightGradient: inputs of matmuls, and gradients of
                           // their outputs
};

// Returns the memory of each rank. The order alone decides it, and no costs.
std::vector<RankMemory> memory_in_flight(const PipelineSchedule& schedule);

}  // namespace titan::pipeline
