#include "apps/runs/plot_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "apps/common/parse_command.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/runs/plot/plot.h"
#include "lab/runs/find_runs.h"

namespace titan {
namespace {

constexpr const char* kPlotHelp =
    R"(Draws curves of runs in the terminal. RUN is a dump folder (job.dump_folder), or a folder of such, as a sweep
makes. The chart is as large as the terminal, and 80x24 where there is none. A metric is a column of metrics.jsonl, or
validation.NAME for one of validation.jsonl.)";

// Of a terminal; 80x24 elsewhere. One line stays free for the prompt.
runs::PlotOptions size_of_output() {
  runs::PlotOptions options;
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return options;
  options.columns = std::max<int>(size.ws_col, runs::kMinColumns);
  options.rows = std::max<int>(size.ws_row - 1, runs::kMinRows);
  return options;
}

bool may_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return stdout_is_terminal() && (!no_color || *no_color == '\0');
}

// Empty when no run has the metric.
std::vector<runs::Series> series_of(const std::vector<runs::RunFolder>& folders,
                                    const std::vector<runs::RunMetrics>& metrics, const std::string& name) {
  std::vector<runs::Series> out;
  bool is_known = false;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    out.push_back({folders[i].name, metrics[i].curve(name)});
    is_known = is_known || !out.back().curve.empty();
  }
  return is_known ? out : std::vector<runs::Series>{};
}

// By meaning, where other programs have a name of their own for it, else by spelling.
std::optional<std::string> nearest_metric(const std::string& name, const std::vector<std::string>& known) {
  static const std::map<std::string, std::string> kOtherNames = {{"learning_rate", "lr"},
                                                                 {"train_loss", "loss"},
                                                                 {"val_loss", "validation.loss"},
                                                                 {"eval_loss", "validation.loss"},
                                                                 {"perplexity", "validation.perplexity"},
                                                                 {"tps", "tokens_per_second"},
                                                                 {"throughput", "tokens_per_second"}};
  const auto other = kOtherNames.find(name);
  if (other == kOtherNames.end()) return nearest_name(name, known);
  return std::ranges::count(known, other->second) > 0 ? std::optional(other->second) : std::nullopt;
}

[[noreturn]] void throw_unknown(const std::string& name, const std::vector<runs::RunMetrics>& metrics) {
  std::vector<std::string> known;
  for (const auto& run : metrics)
    for (const auto& field : run.fields())
      if (std::ranges::count(known, field) == 0) known.push_back(field);
  const auto nearest = nearest_metric(name, known);
  throw ConfigError("error: --metric " + name + ": no run has it" +
                    (nearest ? "; did you mean " + *nearest + "?" : ".") + " They have " + join(known, ", "));
}

}  // namespace

int run_plot_command(const std::vector<std::string>& args) {
  CLI::App app(kPlotHelp, "titan-train plot");
  std::vector<std::string> paths, names;
  runs::PlotOptions options = size_of_output();
  app.add_option("RUN", paths, "folders of runs")->required();
  app.add_option("--metric", names, "what to draw; several times for several charts (default: loss)")
      ->type_name("NAME")
      ->take_all()
      ->expected(1);
  app.add_option("--smooth", options.smooth, "weight of the past in a moving average, 0 to 0.999 (default: 0, none)")
      ->check(CLI::Range(0.0, 0.999));
  app.add_flag("--log", options.log, "a logarithmic axis");
  app.add_option("--columns", options.columns, "width of a chart (default: that of the terminal)")
      ->check(CLI::Range(runs::kMinColumns, 10000));
  auto* rows = app.add_option("--rows", options.rows, "height of a chart (default: all charts fill the terminal)")
                   ->check(CLI::Range(runs::kMinRows, 10000));
  if (const auto code = parse_command(app, args)) return *code;
  if (names.empty()) names = {"loss"};
  if (!*rows) options.rows = std::max(options.rows / static_cast<int>(names.size()), runs::kMinRows);
  options.colors = may_color();
  const auto folders = runs::find_runs(paths);
  std::vector<runs::RunMetrics> metrics;
  for (const auto& folder : folders) metrics.emplace_back(folder.path).refresh();
  std::string out;
  for (const auto& name : names) {
    const auto series = series_of(folders, metrics, name);
    if (series.empty()) throw_unknown(name, metrics);
    out += runs::plot(name, series, options);
  }
  print_result(out);
  return kExitDone;
}

}  // namespace titan
