#include "pipeline/schedule_csv.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace titan::pipeline {
namespace {

constexpr std::string_view kPairEnd = ")OVERLAP_F_B";
// Numbers of stages and microbatches below this have room in memory, whatever a file says.
constexpr int kLargestNumber = 99'999;

[[noreturn]] void refuse(const std::string& message) { throw DataError(message, {kCsvKey}); }

// Takes the digits at the beginning of `text` away, and returns their number; nullopt if there are none or too many.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || text.front() == '-' || number > kLargestNumber) return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

std::optional<Action> read_action(std::string_view text) {
  const auto stage = take_number(text);
  if (!stage || text.empty()) return std::nullopt;
  const auto letter = std::string_view("FBIW").find(text.front());
  text.remove_prefix(1);
  const auto microbatch = take_number(text);
  if (letter == std::string_view::npos || !microbatch || !text.empty()) return std::nullopt;
  return Action{*stage, static_cast<Kind>(letter), *microbatch};
}

std::optional<Step> read_step(std::string_view text) {
  if (!text.starts_with('(')) {
    const auto action = read_action(text);
    return action ? std::optional<Step>(*action) : std::nullopt;
  }
  const auto middle = text.find(';');
  if (middle == std::string_view::npos || !text.ends_with(kPairEnd)) return std::nullopt;
  const auto forward = read_action(trim(text.substr(1, middle - 1)));
  const auto backward = read_action(trim(text.substr(middle + 1, text.size() - kPairEnd.size() - middle - 1)));
  if (!forward || !backward || forward->kind != Kind::kForward || backward->kind != Kind::kBackward)
    return std::nullopt;
  return Step(*forward, *backward);
}

bool names_communication(std::string_view cell) {
  return std::ranges::any_of(std::vector<std::string_view>{"SEND", "RECV", "UNSHARD", "RESHARD", "REDUCE_GRAD"},
                             [cell](std::string_view name) { return cell.find(name) != std::string_view::npos; });
}

// Collects the steps of a file.
class CsvReader {
 public:
  explicit CsvReader(const std::string& file_name) : file_name_(file_name) {}

  void add_line(std::string_view line) {
    const int rank = static_cast<int>(out_.orders.size());
    out_.orders.emplace_back();
    std::size_t cell = 0;
    for (const std::string& part : split(line, ',')) {
      ++cell;
      const std::string_view text = trim(part);
      if (text.empty()) continue;
      const std::string in_file = "line " + std::to_string(rank + 1) + ", cell " + std::to_string(cell);
      const std::string place = file_name_ + ": " + in_file + ": ";
      const auto step = read_step(text);
      if (!step && names_communication(text))
        refuse(place + std::string(text) +
               " is not computation; leave messages, UNSHARD, RESHARD and "
               "REDUCE_GRAD out, the program adds them");
      if (!step)
        refuse(place + "expected a stage, one of F B I W, and a microbatch, as in 2F0; found \"" + std::string(text) +
               "\"");
      for (const Action& action : step->actions()) add_action(action, rank, in_file);
      out_.orders.back().push_back(*step);
    }
  }

  PipelineSchedule take() {
    if (stages_.empty()) refuse(file_name_ + ": there is no action in it");
    check_no_gap("stage", stages_);
    check_no_gap("microbatch", microbatches_);
    for (const auto& [stage, first] : stages_) out_.rank_of_stage.push_back(first.rank);
    out_.num_microbatches = static_cast<int>(microbatches_.size());
    return std::move(out_);
  }

 private:
  // Holds the rank and the place at which something occurs first.
  struct First {
    int rank;
    std::string place;  // "line 1, cell 3 (2F0)"
  };

  void add_action(const Action& action, int rank, const std::string& in_file) {
    const First here{rank, in_file + " (" + to_text(action) + ")"};
    const First& stage = stages_.try_emplace(action.stage, here).first->second;
    if (stage.rank != rank)
      refuse_cell(here, "stage " + std::to_string(action.stage) + " is already in " + stage.place +
                            "; a stage belongs to one rank, which has one line");
    microbatches_.try_emplace(action.microbatch, here);
    const auto [first, is_new] = actions_.try_emplace({action.stage, action.kind, action.microbatch}, in_file);
    if (!is_new) refuse_cell(here, "it is already in " + first->second + "; an action occurs once");
  }

  // Refuses a number beyond those that occur, which is likely a slip in its cell.
  void check_no_gap(const std::string& what, const std::map<int, First>& found) {
    int next = 0;
    for (const auto& [number, first] : found) {
      if (number != next)
        refuse_cell(first, what + " " + std::to_string(number) + " occurs, and " + what + " " + std::to_string(next) +
                               " does not");
      ++next;
    }
  }

  [[noreturn]] void refuse_cell(const First& cell, const std::string& why) {
    refuse(file_name_ + ": " + cell.place + ": " + why);
  }

  std::string file_name_;
  PipelineSchedule out_;
  std::map<int, First> stages_, microbatches_;
  std::map<std::tuple<int, Kind, int>, std::string> actions_;  // the place of each
};

}  // namespace

PipelineSchedule read_schedule_csv(std::string_view text, const std::string& file_name) {
  CsvReader reader(file_name);
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  for (const std::string& line : split(text, '\n')) reader.add_line(line);
  return reader.take();
}

std::string schedule_csv(const PipelineSchedule& schedule) {
  std::string out;
  for (const auto& order : schedule.orders) {
    std::string line;
    for (const Step& step : order)
      if (computes(step.first().kind)) line += (line.empty() ? "" : ",") + to_text(step);
    out += line + "\n";
  }
  return out;
}

void check_same_pipeline(const PipelineSchedule& schedule, const PipelineSchedule& expected,
                         const std::string& file_name, const SizeWords& words) {
  const auto compare = [&file_name](const char* what, int found, int wanted, const std::string& origin) {
    if (found != wanted)
      refuse(file_name + ": expected " + std::to_string(wanted) + " " + what + " (" + origin + "), found " +
             std::to_string(found));
  };
  compare("ranks, a line each", schedule.num_ranks(), expected.num_ranks(), words.ranks);
  compare("stages", schedule.num_stages(), expected.num_stages(), words.stages);
  compare("microbatches", schedule.num_microbatches, expected.num_microbatches, words.microbatches);
  for (int stage = 0; stage < expected.num_stages(); ++stage)
    if (schedule.rank_of_stage[stage] != expected.rank_of_stage[stage])
      refuse(file_name + ": stage " + std::to_string(stage) + " is on rank " +
             std::to_string(schedule.rank_of_stage[stage]) + " (line " +
             std::to_string(schedule.rank_of_stage[stage] + 1) + "), and belongs to rank " +
             std::to_string(expected.rank_of_stage[stage]) + ", as " + words.schedule +
             " says: ZBVZeroBubble and DualPipeV lie in a V, the others in a loop");
}

}  // namespace titan::pipeline
