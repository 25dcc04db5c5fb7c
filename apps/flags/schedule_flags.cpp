#include "apps/flags/schedule_flags.h"

#include <cmath>

#include "apps/flags/option_values.h"
#include "base/text.h"
#include "pipeline/schedule_kinds.h"

namespace titan {
namespace {

constexpr const char* kScheduleHelp =
    R"(Draws a schedule of pipeline parallelism: what each rank does for each microbatch, and when it waits. It predicts
the share of waiting (the bubble), the activations that each rank keeps, and the messages, and checks that the ranks come
to their end. No model is needed, and none is run.
  titan-train schedule 1F1B --ranks 4 --microbatches 8
  titan-train schedule ZBVZeroBubble --ranks 4 --microbatches 8 --costs 10,11,9 --svg zbv.svg
  titan-train schedule --csv my_order.csv)";

// Returns a check for finite numbers above 0. The message of CLI11's own check has a number of 300 digits.
CLI::Validator above_zero() {
  return {[](const std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0) return "";
            return "expected a number above 0; found \"" + text + "\"";
          },
          ""};
}

constexpr int kMostRanks = 1024, kMostStages = 64, kMostMicrobatches = 65536;

}  // namespace

void declare(CLI::App& app, ScheduleFlags& flags) {
  app.name("titan-train schedule");
  app.description(kScheduleHelp);
  app.add_option("NAME", flags.name, join(pipeline::schedule_names(), ", "));
  app.add_option("--ranks", flags.ranks, "ranks of the pipeline (parallelism.pipeline_parallel_degree)")
      ->check(CLI::Range(1, kMostRanks));
  app.add_option("--microbatches", flags.microbatches,
                 "microbatches of a step (training.local_batch_size / parallelism.pipeline_parallel_microbatch_size)")
      ->check(CLI::Range(1, kMostMicrobatches));
  app.add_option("--stages-per-rank", flags.stages_per_rank,
                 "stages that each rank has (default: 1 or 2, by the schedule)")
      ->check(CLI::Range(1, kMostStages));
  suggest_path(
      app.add_option(
             "--csv", flags.csv,
             "file with an order: a line per rank, cells as in 2F0 (stage, one of F B I W, microbatch); NAME and "
             "the numbers, if given, must agree with it")
          ->check(CLI::ExistingFile));
  app.add_option("--costs", flags.costs,
                 "times of a stage's forward, input gradient and weight gradient, in any unit (default: 1,1,1)")
      ->type_name("F,I,W")
      ->delimiter(',')
      ->expected(3)
      ->check(above_zero());
  app.add_option("--format", flags.format, "text: a drawing; csv: the order, as --csv reads it; json: all there is")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "csv", "json"}));
  suggest_path(app.add_option("--svg", flags.svg, "file to write a drawing to, for any browser"));
  app.add_option("--columns", flags.columns, "width of the text (default: that of the terminal, or 120)")
      ->check(CLI::Range(40, 1'000'000));
}

}  // namespace titan
