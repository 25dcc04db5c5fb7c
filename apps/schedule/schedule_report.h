// A schedule with all that `titan-train schedule` says about it.
#pragma once

#include <string>
#include <vector>

#include "pipeline/check_schedule.h"
#include "pipeline/pipeline_schedule.h"
#include "pipeline/timeline.h"

namespace titan {

struct ScheduleReport {
  std::string name;                    // of the schedule, or of the file
  pipeline::PipelineSchedule order;    // of computation
  pipeline::PipelineSchedule lowered;  // with communication
  pipeline::Costs costs;
  pipeline::Timeline timeline;  // of `order`
  std::vector<pipeline::RankMemory> memory;
  int num_messages = 0;
  pipeline::ScheduleCheck check;
};

// Adds communication to an order, checks and simulates it. Throws DataError if it does not come to its end.
ScheduleReport report_schedule(const std::string& name, const pipeline::PipelineSchedule& order,
                               const pipeline::Costs& costs);

// Says how wide time is in the drawings.
struct DrawingScale {
  double shortest = 1;       // time of the shortest step
  int letters_per_step = 1;  // so many letters for each `shortest` leave room for the label of every step, and a blank
};

DrawingScale drawing_scale(const ScheduleReport& report);

// Returns the text of a step in the drawings: "2F0", or "0F3;3B1" for a pair.
std::string label_of(const pipeline::Step& step);

// Returns a number with as many digits as it needs, at most three after the point.
std::string short_number(double value);

// Returns "4 ranks, 8 stages, 16 microbatches".
std::string size_text(const pipeline::PipelineSchedule& schedule);

// Returns "bubble 27.3 %, makespan 33".
std::string bubble_text(const ScheduleReport& report);

}  // namespace titan
