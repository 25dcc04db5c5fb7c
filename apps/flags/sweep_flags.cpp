#include "apps/flags/sweep_flags.h"

#include "apps/flags/option_values.h"

namespace titan {
namespace {

// Throws CLI::ParseError for flags that do not go together.
void check(const CLI::App& app, const SweepFlags& flags) {
  const bool has_grid = !flags.words.grid.empty();
  if (flags.file.empty() && flags.report.value_or("").empty() && !has_grid)
    throw CLI::RequiredError("FILE, or --grid,");
  if (has_grid && !flags.file.empty()) throw CLI::ExcludesError("--grid", "FILE");
  if (has_grid && flags.words.config.empty()) throw CLI::RequiresError("--grid", "--config");
  for (const char* name : {"--config", "--folder", "--nproc"})
    if (!has_grid && app.count(name) > 0) throw CLI::RequiresError(name, "--grid");
  if (flags.objective && !has_grid && !flags.report)
    throw CLI::RequiresError("--objective", "--grid or --report; with FILE set sweep.objective");
  for (const CLI::Option* option : app.get_options())
    if (flags.report && !option->check_name("--report") && !option->check_name("--objective") && option->count() > 0)
      throw CLI::ExcludesError("--report", option->get_name());
}

}  // namespace

void declare(CLI::App& app, SweepFlags& flags) {
  app.name("titan-train sweep");
  app.description(
      "Runs one job many times with different values: grids, random draws, lists; ranks them and writes a report. "
      "Run the same command again to continue an interrupted sweep.");
  app.add_option("FILE", flags.file, "the sweep's TOML file");
  app.add_option("--grid", flags.words.grid,
                 "a key and its values, optimizer.lr=1e-3,1e-2, in place of FILE; several combine")
      ->type_name("KEY=VALUE,...");
  suggest_path(app.add_option("--config", flags.words.config, "with --grid: the job's TOML file"));
  suggest_path(app.add_option("--folder", flags.words.folder,
                              "with --grid: of everything that is written (default: under outputs/sweeps)"));
  app.add_option("--nproc", flags.words.nproc, "with --grid: ranks of a trial (default: 1)")->check(at_least_one());
  suggest_path(
      app.add_option("--report", flags.report, "make report.html and results.csv of this sweep's FOLDER again"));
  app.add_option("--objective", flags.objective,
                 "with --grid, or --report to rank by it: a column, as sweep.objective");
  app.add_flag("--dry-run", flags.options.dry_run, "list the trials and stop");
  app.add_flag("--retry-failed", flags.options.retry_failed, "run trials that failed earlier again");
  app.add_option("--max-parallel", flags.options.max_parallel, "trials at once, instead of sweep.max_parallel")
      ->check(at_least_one());
  app.add_option("--launcher", flags.options.launcher,
                 "start trials with this, for example 'srun --ntasks={ranks}', instead of sweep.launcher");
  app.callback([&app, &flags] { check(app, flags); });
}

}  // namespace titan
