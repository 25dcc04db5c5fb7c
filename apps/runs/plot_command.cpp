#include "apps/runs/plot_command.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "apps/common/print_result.h"
#include "apps/flags/runs/plot_flags.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "lab/runs/find_runs.h"
#include "lab/runs/plot/plot.h"

namespace titan {
namespace {

// Returns the size of the terminal, less one line for the prompt; the default (80x24) if output is not a terminal.
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

// Returns the curve of a metric for each run; empty if no run has the metric.
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

// Returns our name if `name` is another program's name of a metric, else the nearest spelling.
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
  PlotFlags flags;
  if (const auto code = parse_flags(flags, args)) return *code;
  const auto names = flags.metrics.empty() ? std::vector<std::string>{"loss"} : flags.metrics;
  runs::PlotOptions options = size_of_output();
  options.smooth = flags.smooth;
  options.log = flags.log;
  options.columns = flags.columns.value_or(options.columns);
  options.rows = flags.rows.value_or(std::max(options.rows / static_cast<int>(names.size()), runs::kMinRows));
  options.colors = may_color();
  const auto folders = runs::find_runs(flags.runs);
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
