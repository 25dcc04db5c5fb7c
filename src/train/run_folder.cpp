#include "train/run_folder.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/step_folders.h"
#include "config/keys/changes.h"
#include "config/keys/print.h"
#include "config/load.h"
#include "config/paths.h"
#include "metrics/jsonl_sink.h"

namespace titan::train {
namespace {

namespace fs = std::filesystem;

// Steps that a start goes on from, or says why it cannot: a seed is none.
std::vector<int> finished_steps(const config::JobConfig& config) {
  auto steps = checkpoint::steps_in(config::checkpoint_folder(config));
  std::erase(steps, 0);
  return steps;
}

// The configuration of the run that the folder has the rows of; nothing where it cannot be read.
std::optional<config::JobConfig> earlier_config(const fs::path& folder) {
  const fs::path file = folder / layout::kConfigFile;
  try {
    return config::load_job_config_text(read_file(file), file.string()).config;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// What the run before was, where its rows must stay; "" where this start is that run once more.
std::string worth_keeping(const config::JobConfig& config, std::int64_t last_step) {
  const std::string reached = "rows up to step " + std::to_string(last_step);
  const auto earlier = earlier_config(config.job.dump_folder);
  if (!earlier) return "a run (" + reached + ")";
  const auto changes = config::find_changes(config::flatten(*earlier), config);
  if (!changes.empty()) {
    std::vector<std::string> texts = {reached};
    for (const auto& change : changes) texts.push_back(change.key + " was " + change.saved + ", is " + change.now);
    constexpr std::size_t kShown = 4;
    if (texts.size() > kShown) texts[kShown] = std::to_string(texts.size() - kShown) + " more";
    texts.resize(std::min(texts.size(), kShown + 1));
    return "another run (" + join(texts, "; ") + ")";
  }
  return last_step >= last_step_with_row(config) ? "a finished run of this configuration (" + reached + ")" : "";
}

}  // namespace

std::unique_ptr<FileLock> lock_run_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw ConfigError("error: job.dump_folder = \"" + folder + "\" cannot be made: " + error.message() +
                      "; choose another");
  return std::make_unique<FileLock>(
      fs::path(folder) / layout::kLockFile,
      "error: job.dump_folder = \"" + folder +
          "\": another run writes there; wait for it, or choose another folder. Was this one process of several "
          "that mpirun or srun started? They do not know of each other: start them with torchrun or --nproc, or "
          "with the launcher of the MPI that is installed (srun: add --mpi=pmix)");
}

std::int64_t last_step_with_row(const config::JobConfig& config) {
  const std::int64_t freq = config.metrics.log_freq;
  return std::max<std::int64_t>(config.training.steps / freq * freq, 1);
}

void check_run_folder(const config::JobConfig& config, bool overwrite) {
  if (config.checkpoint.create_seed_checkpoint) return;
  const auto steps = config.checkpoint.enable ? finished_steps(config) : std::vector<int>();
  if (!steps.empty() && overwrite)
    throw ConfigError("--overwrite begins a run anew, but " + config::checkpoint_folder(config).string() + " holds " +
                      checkpoint::step_list(steps) +
                      ", which a start goes on from: move that folder away, or leave --overwrite out");
  if (!steps.empty() || overwrite) return;
  const auto last_step = metrics::last_logged_step(config.job.dump_folder);
  if (!last_step) return;
  const std::string found = worth_keeping(config, *last_step);
  if (found.empty()) return;
  const std::string why = config.checkpoint.enable ? "there is no checkpoint to go on from"
                                                   : "checkpoint.enable is false, so it cannot go on from there";
  throw ConfigError("job.dump_folder = \"" + config.job.dump_folder + "\" holds " + found +
                    ", and this start would begin anew and write over it: " + why +
                    ". Choose another job.dump_folder, or add --overwrite");
}

void write_run_config(const config::JobConfig& config) {
  write_file_atomically(fs::path(config.job.dump_folder) / layout::kConfigFile, config::to_toml(config));
}

}  // namespace titan::train
