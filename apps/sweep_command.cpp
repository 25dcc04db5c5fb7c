#include "apps/sweep_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/at_least_one.h"
#include "base/error.h"
#include "sweep/sweep.h"

namespace titan {

int run_sweep_command(const std::vector<std::string>& args) {
  CLI::App app(
      "Runs one job many times with different values: grids, random draws, lists; ranks them and writes a report. The "
      "same command goes on with a sweep that was interrupted.",
      "titan-train sweep");
  sweep::SweepOptions options;
  std::string file, report_folder, launcher;
  std::int64_t max_parallel = 0;
  app.add_option("FILE", file, "the sweep's TOML file");
  auto* report_option =
      app.add_option("--report", report_folder, "make report.html and results.csv of this sweep's FOLDER again");
  app.add_flag("--dry-run", options.dry_run, "list the trials and stop");
  app.add_flag("--retry-failed", options.retry_failed, "run trials that failed earlier again");
  auto* parallel_option =
      app.add_option("--max-parallel", max_parallel, "trials at once, instead of sweep.max_parallel")
          ->check(at_least_one());
  auto* launcher_option = app.add_option(
      "--launcher", launcher, "start trials with this, for example 'srun --ntasks={ranks}', instead of sweep.launcher");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    if (file.empty() && report_folder.empty()) throw CLI::RequiredError("FILE");
    for (const auto* option : app.get_options())
      if (*report_option && option != report_option && option->count() > 0)
        throw CLI::ExcludesError("--report", option->get_name());
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string("titan-train sweep: error: ") + error.what() + "; --help lists what there is");
  }
  if (*report_option) return sweep::remake_report(report_folder);
  options.file = file;
  if (*parallel_option) options.max_parallel = max_parallel;
  if (*launcher_option) options.launcher = launcher;
  return sweep::run_sweep(options);
}

}  // namespace titan
