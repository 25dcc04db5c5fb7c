// Texts and a walk that the checks of a schedule share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipeline/pipeline_schedule.h"

namespace titan::pipeline {

// Returns "rank 1, action 5 (2RECV_F1)"; `index` counts from 0.
std::string place_text(const PipelineSchedule& schedule, int rank, std::size_t index);

// Walks through the orders of all ranks. `try_step(rank, index)` does the step and returns true, or returns false if it
// has to wait. Returns the index at which each rank stands in the end: the size of its order unless it waits forever.
std::vector<std::size_t> walk(const PipelineSchedule& schedule,
                              const std::function<bool(int rank, std::size_t index)>& try_step);

// Returns "no rank can go on: rank 0, action 5 (2F1) waits for 1F1; ..." for ranks that stand before their end; empty
// if there are none. `wanted` returns the text of what a step waits for.
std::string waiting_text(const PipelineSchedule& schedule, const std::vector<std::size_t>& stands,
                         const std::function<std::string(int rank, std::size_t index)>& wanted);

}  // namespace titan::pipeline
