// Adds to an order of computation what the ranks exchange. No torch.
#pragma once

#include "pipeline/pipeline_schedule.h"

namespace titan::pipeline {

// Returns the schedule with its messages, and with the gathers and reductions of fully_shard, at the places where
// PyTorch's multi-stage schedules have them; those of one stage per rank get the same.
//
// Before each step the rank gathers up to three stages that it computes next (kUnshard), after it has freed the others
// (kReshard); at the end it frees all. A stage's gradients are reduced after its last weight gradients. A message is
// sent right after the step that made it. The receiver posts it as early as the sender can have sent it: the sends and
// receives of all ranks have one order in which each receive follows its send, so that they end even if a send waits
// for its receive.
//
// Throws DataError with the text of find_wrong_computation() if the order of computation has a fault.
PipelineSchedule with_communication(const PipelineSchedule& schedule);

// Returns a schedule of forwards alone for the same stages, with its messages, for any number of microbatches: in
// rounds of as many microbatches as there are ranks, each of which goes through a rank's stages one after the other. It
// ends even if a send waits for its receive.
PipelineSchedule forwards_alone(const std::vector<int>& rank_of_stage, int num_microbatches);

// Returns the messages of a schedule with communication.
int num_messages(const PipelineSchedule& schedule);

}  // namespace titan::pipeline
