#include "lab/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/memory.h"
#include "base/text.h"
#include "config/keys/source.h"
#include "config/paths.h"
#include "lab/sweep/driver.h"
#include "lab/sweep/report/sweep_report.h"
#include "lab/sweep/results/results.h"

namespace titan::sweep {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::string list_trials(const SweepSpec& spec, const Plan& plan, std::size_t num_slots) {
  std::string out = "sweep " + spec.name + ": " + counted(std::ssize(plan.trials), "trial") + " of " +
                    counted(spec.nproc, "rank") + ", " + std::to_string(num_slots) + " at once, in " +
                    spec.folder.string() + "\n";
  if (!plan.rungs.empty()) {
    std::vector<std::string> rungs;
    for (const auto steps : plan.rungs) rungs.push_back(std::to_string(steps));
    out += "rungs at steps " + join(rungs, ", ") + "; of those at one the best 1/" +
           std::to_string(spec.asha->reduction_factor) + " go on\n";
  }
  for (std::size_t i = 0; i < plan.trials.size(); ++i) {
    std::vector<std::string> values;
    for (const auto& [key, value] : plan.trials[i].values) values.push_back(key + " = " + to_toml_value(value));
    out += plan.trials[i].name.substr(0, 9) + "  " + join(values, ", ") + "\n";
  }
  return out;
}

// Returns files and folders that trials would not find, each once.
std::vector<std::string> missing_files(const Plan& plan) {
  std::vector<std::string> out;
  for (const PlannedTrial& trial : plan.trials)
    for (const config::Fault& fault : config::find_wrong_paths(trial.config))
      if (std::ranges::count(out, "error: " + fault.message) == 0) out.push_back("error: " + fault.message);
  return out;
}

// Checks trials that run on this machine: each starts its ranks here.
void check_ranks(const SweepSpec& spec) {
  if (!spec.launcher.empty()) return;
  const std::string begin = "sweep.nproc = " + std::to_string(spec.nproc) + ": ";
  if (const std::string why = too_many_ranks(spec.nproc); !why.empty())
    throw ConfigError("error: " + begin + why + "; lower it");
  const auto cores = std::ssize(find_machine().cores);
  if (spec.gpus == 0 && spec.nproc > cores)
    print("warning: " + begin + "the ranks of a trial share " + std::to_string(cores) +
          " cores, and wait for each other\n");
}

void print_end(const Record& record, const std::filesystem::path& folder) {
  constexpr std::size_t kRows = 20;
  print("\n" + ranking_table(record, kRows) + "\n");
  for (const auto& trial : record.trials)
    if (trial.state == State::kFailed) print(trial.name + " failed: " + trial.error + "\n");
  print("Report: " + (folder / "report.html").string() + "\n");
}

}  // namespace

int run_sweep(const SweepOptions& options) {
  SweepSpec spec = options.text ? read_spec_text(*options.text, options.file) : read_spec(options.file);
  if (options.launcher) spec.launcher = *options.launcher;
  if (options.max_parallel) spec.max_parallel = options.max_parallel;
  Plan plan = make_plan(spec);
  const auto slots = make_slots(spec, find_machine());
  // Check the launcher's words once here rather than per trial.
  if (!spec.launcher.empty()) fill_launcher(spec.launcher, {}, {});
  check_ranks(spec);
  for (const auto& warning : plan.warnings) print("warning: " + warning + "\n");
  if (!plan.trials.front().config.checkpoint.enable)
    print("warning: checkpoint.enable is off: trials that are interrupted start again from their first step\n");
  const auto missing = missing_files(plan);
  if (options.dry_run) {
    for (const auto& message : missing) print("warning: a start here would be refused: " + message + "\n");
    print(list_trials(spec, plan, slots.size()));
    return kExitDone;
  }
  config::throw_if_wrong(missing);
  std::filesystem::create_directories(spec.folder);
  const SweepLock lock(spec.folder);
  Record record = new_record(spec, plan, static_cast<double>(std::time(nullptr)));
  if (const auto saved = load_record(spec.folder)) take_on(*saved, record, plan, spec.folder);
  // Write the file only now that the folder is known to belong to this sweep.
  if (options.text) write_file_atomically(options.file, *options.text);
  Driver driver(spec, plan, std::move(record), slots);
  if (options.retry_failed) driver.retry_failed();
  const int exit_code = driver.run();
  print_end(driver.record(), spec.folder);
  if (exit_code == kExitSavedRequeue) print("Stopped; run the same command again to continue.\n");
  return exit_code;
}

int remake_report(const std::filesystem::path& folder, const std::optional<std::string>& objective) {
  auto record = load_record(folder);
  if (!record) throw ConfigError("error: " + folder.string() + " has no sweep.json; expected the folder of a sweep");
  if (objective) judge_again(*record, folder, objective_named(*objective));
  write_report(folder, *record, time_text());
  print_end(*record, folder);
  return kExitDone;
}

}  // namespace titan::sweep
