#include "apps/commands/sweep_command.h"

#include <CLI/CLI.hpp>

#include "apps/common/at_least_one.h"
#include "apps/common/print_result.h"
#include "base/error.h"
#include "lab/sweep/plan/grid_words.h"
#include "lab/sweep/sweep.h"

namespace titan {

int run_sweep_command(const std::vector<std::string>& args) {
  CLI::App app(
      "Runs one job many times with different values: grids, random draws, lists; ranks them and writes a report. The "
      "same command goes on with a sweep that was interrupted.",
      "titan-train sweep");
  sweep::SweepOptions options;
  std::string file, report_folder, launcher, objective;
  std::int64_t max_parallel = 0, nproc = 0;
  sweep::GridWords words;
  app.add_option("FILE", file, "the sweep's TOML file");
  app.add_option("--grid", words.grid,
                 "a key and its values, optimizer.lr=1e-3,1e-2, in place of FILE; several combine")
      ->type_name("KEY=VALUE,...");
  app.add_option("--config", words.config, "with --grid: the job's TOML file");
  app.add_option("--folder", words.folder,
                 "with --grid: of everything that is written (default: under outputs/sweeps)");
  auto* nproc_option =
      app.add_option("--nproc", nproc, "with --grid: ranks of a trial (default: 1)")->check(at_least_one());
  auto* report_option =
      app.add_option("--report", report_folder, "make report.html and results.csv of this sweep's FOLDER again");
  auto* objective_option =
      app.add_option("--objective", objective, "with --grid, or --report to rank by it: a column, as sweep.objective");
  app.add_flag("--dry-run", options.dry_run, "list the trials and stop");
  app.add_flag("--retry-failed", options.retry_failed, "run trials that failed earlier again");
  auto* parallel_option =
      app.add_option("--max-parallel", max_parallel, "trials at once, instead of sweep.max_parallel")
          ->check(at_least_one());
  auto* launcher_option = app.add_option(
      "--launcher", launcher, "start trials with this, for example 'srun --ntasks={ranks}', instead of sweep.launcher");
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    if (file.empty() && report_folder.empty() && words.grid.empty()) throw CLI::RequiredError("FILE, or --grid,");
    if (!words.grid.empty() && !file.empty()) throw CLI::ExcludesError("--grid", "FILE");
    if (!words.grid.empty() && words.config.empty()) throw CLI::RequiresError("--grid", "--config");
    for (const char* name : {"--config", "--folder", "--nproc"})
      if (words.grid.empty() && app.count(name) > 0) throw CLI::RequiresError(name, "--grid");
    if (*objective_option && words.grid.empty() && !*report_option)
      throw CLI::RequiresError("--objective", "--grid or --report; with FILE set sweep.objective");
    for (const auto* option : app.get_options())
      if (*report_option && option != report_option && option != objective_option && option->count() > 0)
        throw CLI::ExcludesError("--report", option->get_name());
  } catch (const CLI::CallForHelp&) {
    print_result(app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string("titan-train sweep: error: ") + error.what() + "; --help lists what there is");
  }
  const auto other_objective = *objective_option ? std::optional(objective) : std::nullopt;
  if (*report_option) return sweep::remake_report(report_folder, other_objective);
  options.file = file;
  if (!words.grid.empty()) {
    if (*nproc_option) words.nproc = nproc;
    words.objective = other_objective;
    const sweep::SweepFile made = sweep_file_of(words);
    options.file = made.path;
    options.text = made.text;
  }
  if (*parallel_option) options.max_parallel = max_parallel;
  if (*launcher_option) options.launcher = launcher;
  return sweep::run_sweep(options);
}

}  // namespace titan
