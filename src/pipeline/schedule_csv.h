// Orders of computation as CSV text, in PyTorch's format. No torch.
//
// One line per rank, one cell per step: STAGE, one of F B I W, MICROBATCH, as in 2F0, or a pair as in
// (0F3;3B1)OVERLAP_F_B. An empty cell means that the rank waits; a simulation needs none, so it is left out.
#pragma once

#include <string>
#include <string_view>

#include "pipeline/pipeline_keys.h"
#include "pipeline/pipeline_schedule.h"

namespace titan::pipeline {

// Reads an order. The numbers of ranks, stages and microbatches are those that occur in it, and a stage belongs to the
// rank that computes it. Throws DataError, which names the line and the cell, for anything but computation, for a stage
// on two ranks, an action that occurs twice, and numbers of stages or microbatches that are beyond a gap. Other faults
// are left to find_wrong_computation().
PipelineSchedule read_schedule_csv(std::string_view text, const std::string& file_name);

// Writes the steps that compute, without empty cells.
std::string schedule_csv(const PipelineSchedule& schedule);

// Throws DataError if the numbers of ranks, stages and microbatches, or the rank of a stage, differ from those of
// `expected`, which an order in a file must have for a run.
void check_same_pipeline(const PipelineSchedule& schedule, const PipelineSchedule& expected,
                         const std::string& file_name, const SizeWords& words = {});

}  // namespace titan::pipeline
