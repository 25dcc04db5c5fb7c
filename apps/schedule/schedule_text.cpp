#include "apps/schedule/schedule_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "base/text_table.h"

namespace titan {
namespace {

// Writes the lines of ranks, letter by letter.
class Drawing {
 public:
  Drawing(const ScheduleReport& report, int columns)
      : report_(report), scale_(drawing_scale(report)), room_(columns - static_cast<int>(heading(0).size())) {}

  std::string text() {
    std::string out;
    for (int rank = 0; rank < report_.order.num_ranks(); ++rank) out += heading(rank) + line(rank) + "\n";
    out += fmt::format("\n{} letters are a time of {}; dots are waits", scale_.letters_per_step,
                       short_number(scale_.shortest));
    if (!left_out_) return out + "\n";
    const std::int64_t needed = std::ssize(heading(0)) + column(report_.timeline.makespan);
    return out + fmt::format(
                     "\nleft out: what begins at {} or later, up to {}; --columns {} shows it, --svg FILE draws it, "
                     "--format csv prints the order\n",
                     short_number(*left_out_), short_number(report_.timeline.makespan), needed);
  }

 private:
  std::string heading(int rank) const {
    const std::size_t digits = std::to_string(report_.order.num_ranks() - 1).size();
    return fmt::format("rank {:>{}}  ", rank, digits);
  }

  std::int64_t column(double time) const { return std::llround(time / scale_.shortest * scale_.letters_per_step); }

  std::string line(int rank) {
    std::string out;
    const auto fill = [&out](std::int64_t end, char letter) {
      if (end <= std::ssize(out)) return;
      out.resize(static_cast<std::size_t>(end) - 1, letter);
      out += ' ';
    };
    for (const auto& step : report_.timeline.ranks[rank].steps) {
      if (column(step.end) - 1 > room_) {
        left_out_ = std::min(left_out_.value_or(step.begin), step.begin);
        break;
      }
      fill(column(step.begin), '.');
      out += label_of(report_.order.orders[rank][step.index]);
      fill(column(step.end), '-');
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  }

  const ScheduleReport& report_;
  DrawingScale scale_;
  int room_;
  std::optional<double> left_out_;  // time from which on steps are left out
};

std::string rank_table(const ScheduleReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "stages", "busy", "waits", "of it between", "activations", "between I and W"}};
  for (int rank = 0; rank < report.order.num_ranks(); ++rank) {
    const auto& line = report.timeline.ranks[rank];
    std::vector<std::string> stages;
    for (const int stage : stages_of_rank(report.order, rank)) stages.push_back(std::to_string(stage));
    rows.push_back({std::to_string(rank), join(stages, " "), short_number(line.busy),
                    short_number(report.timeline.makespan - line.busy), short_number(line.idle_between),
                    std::to_string(report.memory[rank].activations),
                    std::to_string(report.memory[rank].between_halves)});
  }
  return text_table(rows, {true, false, true, true, true, true, true});
}

}  // namespace

std::string schedule_text(const ScheduleReport& report, int columns) {
  const auto& costs = report.costs;
  std::string out =
      fmt::format("{}: {}; times: F {}, I {}, W {}, B {}\n\n", report.name, size_text(report.order),
                  short_number(costs.forward), short_number(costs.input_gradient), short_number(costs.weight_gradient),
                  short_number(costs.input_gradient + costs.weight_gradient));
  out += Drawing(report, columns).text();
  out += fmt::format("\n{}, {}\n\n", bubble_text(report), counted(report.num_messages, "message"));
  out += rank_table(report);
  out +=
      "\nwaits between: after a rank's first action and before its last. activations: the most microbatches of a "
      "stage\n"
      "that the rank keeps at once, from F to the end of B or W; between I and W: the most of them after their I.\n";
  if (report.check.fault_if_sends_wait)
    out += "It ends only if sends do not wait for their receiver: " + *report.check.fault_if_sends_wait + "\n";
  return out;
}

}  // namespace titan
