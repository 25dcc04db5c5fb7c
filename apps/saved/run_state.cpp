#include "apps/saved/run_state.h"

#include <cmath>

#include "base/error.h"
#include "base/fs.h"
#include "base/process/file_lock.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/io/read_error.h"
#include "config/load.h"
#include "config/paths.h"
#include "distributed/parallel_dims.h"
#include "metrics/jsonl_sink.h"
#include "train/run_folder.h"

namespace titan {
namespace {

namespace fs = std::filesystem;
using checkpoint::LoggedStep;
using checkpoint::RunInfo;
using checkpoint::StepInfo;
using State = RunInfo::State;

using layout::kConfigFile;
constexpr const char* kFull = "full";

config::JobConfig config_of(const fs::path& folder) {
  const fs::path file = folder / kConfigFile;
  config::JobConfig config;
  try {
    if (fs::is_regular_file(file)) config = config::load_job_config_text(read_file(file), file.string()).config;
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  return config;
}

// Returns the folder where the checkpoints are now. A relative path starts at `folder`, not at job.dump_folder: the
// folder may have moved, or the run had another current folder.
fs::path checkpoints_of(const config::JobConfig& config, const fs::path& folder) {
  const fs::path named = config.checkpoint.folder;
  return named.is_absolute() ? named : folder / named;
}

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

std::string quoted(const std::string& word) {
  if (word.find_first_of(" \t\"'\\$&;|<>()*?[]#~`!{}") == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command_of(const RunInfo& run, const config::JobConfig& config, std::int64_t ranks) {
  std::string command = "titan-train";
  if (ranks > 1) command += " --nproc " + std::to_string(ranks);
  command += " --config " + quoted((run.path / kConfigFile).string());
  // The configuration may name the folder relative to where the run was started.
  if (!is_same_folder(config.job.dump_folder, run.path)) command += " --job.dump_folder " + quoted(run.path.string());
  return command;
}

// Returns the command that resumes the run, or why it cannot be resumed.
std::string next_of(const RunInfo& run, const config::JobConfig& config) {
  if (run.state == State::kRunning) return "nothing to do: it is running";
  if (!fs::is_regular_file(run.path / kConfigFile))
    return "with the run's own configuration: there is no config.toml here";
  const StepInfo* newest = newest_complete(run.steps);
  const StepInfo* full = newest_complete(run.steps, kFull);
  if (run.state == State::kFinished && (full == nullptr || full != newest))
    return newest == nullptr
               ? "not possible: it kept no checkpoint"
               : "not possible from its end: the last checkpoint holds the model only; a new run starts from it with "
                 "checkpoint.initial_load_path";
  const std::string command = command_of(run, config, full && full->ranks ? *full->ranks : 1);
  if (run.state == State::kFinished)
    return command + " --training.steps N, with N above " + std::to_string(run.total_steps);
  if (full != nullptr) return command + ", from step " + std::to_string(full->step);
  return command + ", from the beginning: there is no checkpoint of a full state";
}

State state_of(const RunInfo& run, const config::JobConfig& config) {
  if (is_locked(run.path / layout::kLockFile)) return State::kRunning;
  if (run.total_steps == 0) return State::kStopped;
  const StepInfo* newest = newest_complete(run.steps);
  const bool all_logged = !run.rows.empty() && run.rows.back().step >= train::last_step_with_row(config);
  const bool all_saved = newest != nullptr && newest->step >= run.total_steps;
  if (all_saved || (all_logged && newest == nullptr)) return State::kFinished;
  return run.step > 0 ? State::kStopped : State::kNotBegun;
}

}  // namespace

std::string mesh_text(const config::Parallelism& parallelism, std::optional<std::int64_t> ranks) {
  if (!ranks) return "";
  try {
    return dist::ParallelDims::from_config(parallelism, static_cast<int>(*ranks)).text();
  } catch (const ConfigError&) {
    return "";  // saved on another mesh than the configuration's
  }
}

std::vector<LoggedStep> rows_of_run(const fs::path& folder) {
  std::vector<LoggedStep> rows;
  for (const auto& row : metrics::read_steps(folder))
    rows.push_back(
        {row.step, std::isnan(row.loss) ? std::nullopt : std::optional(row.loss), row.tokens_seen, row.unix_time});
  return rows;
}

std::optional<RunInfo> find_run(const fs::path& folder) {
  if (!fs::is_directory(folder)) return std::nullopt;
  const auto config = config_of(folder);
  RunInfo run;
  run.path = folder;
  run.checkpoints = checkpoints_of(config, folder);
  run.steps = checkpoint::inspect_run(run.checkpoints);
  run.rows = rows_of_run(folder);
  if (fs::is_regular_file(folder / kConfigFile)) {
    run.model = config.model.name + " " + config.model.flavor;
    run.total_steps = config.training.steps;
  } else if (run.steps.empty() && run.rows.empty()) {
    return std::nullopt;
  }
  if (!run.rows.empty()) run.step = run.rows.back().step;
  if (const StepInfo* newest = newest_complete(run.steps)) {
    run.step = std::max(run.step, newest->step);
    run.mesh = mesh_text(config.parallelism, newest->ranks);
  }
  run.state = state_of(run, config);
  run.next = next_of(run, config);
  return run;
}

fs::path newest_checkpoint(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  fs::path folder = path;
  auto steps = checkpoint::inspect_run(folder);
  if (steps.empty()) {
    folder = checkpoints_of(config_of(path), path);
    steps = checkpoint::inspect_run(folder);
  }
  if (steps.empty() && fs::is_regular_file(path / kConfigFile))
    throw CheckpointError(path.string() + " is a run without checkpoints: " + folder.string() + " has none");
  if (steps.empty()) return path;
  const StepInfo* newest = newest_complete(steps);
  for (const StepInfo& step : steps)
    if (step.state == StepInfo::State::kUnreadable && (newest == nullptr || step.step > newest->step))
      throw checkpoint::ReadError(step.detail + ". Or name an older one");
  if (newest != nullptr) return folder / newest->name;
  throw CheckpointError(folder.string() + " has no complete checkpoint; titan-train inspect " + folder.string() +
                        " says what is wrong with each");
}

}  // namespace titan
