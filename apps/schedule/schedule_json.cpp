#include "apps/schedule/schedule_json.h"

#include <nlohmann/json.hpp>

namespace titan {
namespace {

using nlohmann::ordered_json;

ordered_json rank_json(const ScheduleReport& report, int rank) {
  const auto& line = report.timeline.ranks[rank];
  ordered_json out = {{"rank", rank},
                      {"stages", stages_of_rank(report.order, rank)},
                      {"busy", line.busy},
                      {"idle_between", line.idle_between},
                      {"activations", report.memory[rank].activations},
                      {"between_halves", report.memory[rank].between_halves}};
  ordered_json steps = ordered_json::array(), actions = ordered_json::array();
  for (const auto& step : line.steps)
    steps.push_back(
        {{"action", to_text(report.order.orders[rank][step.index])}, {"begin", step.begin}, {"end", step.end}});
  for (const auto& step : report.lowered.orders[rank]) actions.push_back(to_text(step));
  out["steps"] = std::move(steps);
  out["with_communication"] = std::move(actions);
  return out;
}

}  // namespace

std::string schedule_json(const ScheduleReport& report) {
  ordered_json out = {{"name", report.name},
                      {"num_ranks", report.order.num_ranks()},
                      {"num_stages", report.order.num_stages()},
                      {"num_microbatches", report.order.num_microbatches},
                      {"costs",
                       {{"forward", report.costs.forward},
                        {"input_gradient", report.costs.input_gradient},
                        {"weight_gradient", report.costs.weight_gradient}}},
                      {"makespan", report.timeline.makespan},
                      {"bubble", report.timeline.bubble},
                      {"num_messages", report.num_messages},
                      {"ends_if_sends_wait", !report.check.fault_if_sends_wait},
                      {"ranks", ordered_json::array()}};
  for (int rank = 0; rank < report.order.num_ranks(); ++rank) out["ranks"].push_back(rank_json(report, rank));
  return out.dump() + "\n";
}

}  // namespace titan
