#include "apps/flags/runs/plot_flags.h"

#include <CLI/CLI.hpp>

#include "apps/flags/option_values.h"
#include "lab/runs/plot/plot.h"

namespace titan {
namespace {

constexpr const char* kPlotHelp =
    R"(Draws curves of runs in the terminal. RUN is a dump folder (job.dump_folder), or a folder of such, as a sweep
makes. The chart is as large as the terminal, and 80x24 where there is none. A metric is a column of metrics.jsonl, or
validation.NAME for one of validation.jsonl, evaluation.TASK/SCORE for one of evaluation.jsonl.)";

}  // namespace

void declare(CLI::App& app, PlotFlags& flags) {
  app.name("titan-train plot");
  app.description(kPlotHelp);
  app.add_option("RUN", flags.runs, "folders of runs")->required();
  app.add_option("--metric", flags.metrics, "what to draw; several times for several charts (default: loss)")
      ->type_name("NAME")
      ->take_all()
      ->expected(1);
  app.add_option("--smooth", flags.smooth, "weight of the past in a moving average, 0 to 0.999 (default: 0, none)")
      ->check(number_between(0, 0.999, "0 to 0.999"));
  app.add_flag("--log", flags.log, "a logarithmic axis");
  app.add_option("--columns", flags.columns, "width of a chart (default: that of the terminal)")
      ->check(CLI::Range(runs::kMinColumns, 10000));
  app.add_option("--rows", flags.rows, "height of a chart (default: all charts fill the terminal)")
      ->check(CLI::Range(runs::kMinRows, 10000));
}

}  // namespace titan
