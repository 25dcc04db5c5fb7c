#include "pipeline/places.h"

namespace titan::pipeline {

std::string place_text(const PipelineSchedule& schedule, int rank, std::size_t index) {
  return "rank " + std::to_string(rank) + ", action " + std::to_string(index + 1) + " (" +
         to_text(schedule.orders[rank][index]) + ")";
}

std::vector<std::size_t> walk(const PipelineSchedule& schedule,
                              const std::function<bool(int rank, std::size_t index)>& try_step) {
  std::vector<std::size_t> stands(schedule.orders.size());
  for (bool any = true; any;) {
    any = false;
    for (int rank = 0; rank < schedule.num_ranks(); ++rank)
      while (stands[rank] < schedule.orders[rank].size() && try_step(rank, stands[rank])) {
        ++stands[rank];
        any = true;
      }
  }
  return stands;
}

std::string waiting_text(const PipelineSchedule& schedule, const std::vector<std::size_t>& stands,
                         const std::function<std::string(int rank, std::size_t index)>& wanted) {
  std::string text;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    if (stands[rank] == schedule.orders[rank].size()) continue;
    text += text.empty() ? "no rank can go on: " : "; ";
    text += place_text(schedule, rank, stands[rank]) + " waits for " + wanted(rank, stands[rank]);
  }
  return text;
}

}  // namespace titan::pipeline
