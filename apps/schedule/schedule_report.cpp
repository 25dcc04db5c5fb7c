#include "apps/schedule/schedule_report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/with_communication.h"

namespace titan {

ScheduleReport report_schedule(const std::string& name, const pipeline::PipelineSchedule& order,
                               const pipeline::Costs& costs) {
  ScheduleReport report;
  report.name = name;
  report.order = order;
  report.lowered = with_communication(order);
  report.costs = costs;
  report.check = check_schedule(report.lowered);
  TITAN_CHECK(!report.check.fault, *report.check.fault);
  report.timeline = simulate(order, costs);
  report.memory = memory_in_flight(order);
  report.num_messages = num_messages(report.lowered);
  return report;
}

std::string label_of(const pipeline::Step& step) {
  const auto actions = step.actions();
  return step.is_pair() ? to_text(actions[0]) + ";" + to_text(actions[1]) : to_text(actions[0]);
}

DrawingScale drawing_scale(const ScheduleReport& report) {
  DrawingScale scale{.shortest = report.timeline.makespan};
  for (const auto& rank : report.timeline.ranks)
    for (const auto& step : rank.steps) scale.shortest = std::min(scale.shortest, step.end - step.begin);
  for (int rank = 0; rank < report.order.num_ranks(); ++rank)
    for (const auto& step : report.timeline.ranks[rank].steps) {
      const double needed = static_cast<double>(label_of(report.order.orders[rank][step.index]).size() + 1);
      const double steps = (step.end - step.begin) / scale.shortest;
      scale.letters_per_step = std::max(scale.letters_per_step, static_cast<int>(std::ceil(needed / steps)));
    }
  return scale;
}

std::string short_number(double value) {
  std::string text = fmt::format("{:.3f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string size_text(const pipeline::PipelineSchedule& schedule) {
  return counted(schedule.num_ranks(), "rank") + ", " + counted(schedule.num_stages(), "stage") + ", " +
         (schedule.num_microbatches == 1 ? "1 microbatch" : fmt::format("{} microbatches", schedule.num_microbatches));
}

std::string bubble_text(const ScheduleReport& report) {
  return fmt::format("bubble {:.1f} %, makespan {}", 100 * report.timeline.bubble,
                     short_number(report.timeline.makespan));
}

}  // namespace titan
