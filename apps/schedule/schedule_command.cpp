#include "apps/schedule/schedule_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "apps/common/print_result.h"
#include "apps/flags/schedule_flags.h"
#include "apps/schedule/schedule_json.h"
#include "apps/schedule/schedule_report.h"
#include "apps/schedule/schedule_svg.h"
#include "apps/schedule/schedule_text.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/text.h"
#include "pipeline/schedule_csv.h"
#include "pipeline/schedule_kinds.h"

namespace titan {
namespace {

using pipeline::PipelineSchedule;

// Ranks times stages times microbatches beyond this would print more than anybody reads.
constexpr std::int64_t kMostForwards = 200'000;
// Times that differ by more cannot be drawn in one scale.
constexpr double kMostTimes = 1000;

[[noreturn]] void refuse(const std::string& message) { throw ConfigError("error: " + message); }

pipeline::SizeWords option_words() {
  return {.ranks = "--ranks",
          .stages = "by NAME and --stages-per-rank",
          .microbatches = "--microbatches",
          .schedule = "NAME",
          .change_stages = {"set --stages-per-rank to ", ""},
          .change_microbatches = {"set --microbatches to ", ""},
          .give_order = "name a file with one (--csv FILE)"};
}

int default_stages(const pipeline::ScheduleKind& kind) { return kind.is_single_stage ? 1 : 2; }

PipelineSchedule schedule_by_name(const ScheduleFlags& flags) {
  if (flags.name.empty())
    refuse("expected the NAME of a schedule (" + join(pipeline::schedule_names(), ", ") +
           ") or an order in a file (--csv FILE)");
  const auto& kind = pipeline::find_schedule_kind(flags.name);
  if (!flags.ranks || !flags.microbatches) refuse("expected --ranks and --microbatches, the size of the pipeline");
  const pipeline::PipelineSize size{.num_ranks = *flags.ranks,
                                    .stages_per_rank = flags.stages_per_rank.value_or(default_stages(kind)),
                                    .num_microbatches = *flags.microbatches};
  if (std::int64_t{size.num_stages()} * size.num_microbatches > kMostForwards)
    refuse("expected at most " + with_thousands(kMostForwards) + " for ranks * stages per rank * microbatches");
  return make_schedule(kind, size, option_words());
}

// Reads the order of a file. NAME, and the numbers if they are given, say which pipeline it must be for.
PipelineSchedule schedule_of_file(const ScheduleFlags& flags) {
  const PipelineSchedule schedule = pipeline::read_schedule_csv(read_file(flags.csv), flags.csv);
  const auto* kind = flags.name.empty() ? nullptr : &pipeline::find_schedule_kind(flags.name);
  PipelineSchedule expected = schedule;
  const int ranks = flags.ranks.value_or(schedule.num_ranks());
  expected.orders.resize(static_cast<std::size_t>(ranks));
  expected.num_microbatches = flags.microbatches.value_or(schedule.num_microbatches);
  if (kind || flags.stages_per_rank) {
    const bool is_v = kind && kind->style == pipeline::StageStyle::kV;
    const int per_rank = flags.stages_per_rank.value_or(
        kind && (is_v || kind->is_single_stage) ? default_stages(*kind) : (schedule.num_stages() + ranks - 1) / ranks);
    if (is_v && per_rank != 2) refuse("--stages-per-rank: " + std::string(kind->name) + " needs exactly 2");
    if (kind)
      expected.rank_of_stage = place_stages(ranks, ranks * per_rank, kind->style);
    else
      expected.rank_of_stage.resize(static_cast<std::size_t>(ranks) * per_rank);
  }
  check_same_pipeline(schedule, expected, flags.csv, option_words());
  return schedule;
}

pipeline::Costs costs_of(const ScheduleFlags& flags) {
  constexpr double kLongest = 1e12;
  const auto [least, most] = std::ranges::minmax(flags.costs);
  if (!(most <= kLongest)) refuse("--costs: expected no time above " + short_number(kLongest));
  if (most > kMostTimes * least)
    refuse("--costs: expected no time above " + short_number(kMostTimes) + " times another");
  return {.forward = flags.costs[0], .input_gradient = flags.costs[1], .weight_gradient = flags.costs[2]};
}

int output_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 120;
  return std::max<int>(size.ws_col, 40);
}

}  // namespace

int run_schedule_command(const std::vector<std::string>& args) {
  ScheduleFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  const PipelineSchedule order = flags.csv.empty() ? schedule_by_name(flags) : schedule_of_file(flags);
  std::string name = flags.csv;
  if (name.empty()) name = pipeline::find_schedule_kind(flags.name).name;
  const ScheduleReport report = report_schedule(name, order, costs_of(flags));
  if (std::filesystem::is_directory(flags.svg))
    refuse("--svg " + flags.svg + " is a folder; expected the name of the drawing's file");
  if (!flags.svg.empty()) write_file_atomically(flags.svg, schedule_svg(report));
  if (flags.format == "csv") print_result(pipeline::schedule_csv(order));
  if (flags.format == "json") print_result(schedule_json(report));
  if (flags.format == "text") print_result(schedule_text(report, flags.columns.value_or(output_columns())));
  return kExitDone;
}

}  // namespace titan
