#include "train/run_folder.h"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/memory_copies.h"
#include "config/keys/changes.h"
#include "config/keys/print.h"
#include "config/load.h"
#include "config/paths.h"
#include "metrics/jsonl_sink.h"

namespace titan::train {
namespace {

namespace fs = std::filesystem;

// Returns the steps whose checkpoints a start resumes from or fails on. A seed (step 0) does not count.
std::vector<int> finished_steps(const config::JobConfig& config) {
  auto steps = checkpoint::steps_in(config::checkpoint_folder(config));
  std::erase(steps, 0);
  return steps;
}

// Returns the steps whose copies in memory a start resumes from.
std::vector<int> copied_steps(const config::JobConfig& config) {
  const auto copies = checkpoint::find_copies(config.checkpoint.memory_folder, config::checkpoint_folder(config));
  return copies.empty() ? std::vector<int>() : checkpoint::steps_in(copies);
}

// Returns the configuration of the run whose rows the folder holds; nullopt if it cannot be read.
std::optional<config::JobConfig> earlier_config(const fs::path& folder) {
  const fs::path file = folder / layout::kConfigFile;
  try {
    return config::load_job_config_text(read_file(file), file.string()).config;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

struct EarlierRun {
  std::string words;              // "another run (rows up to step 5; training.seq_len was 64, is 32)"
  std::vector<std::string> keys;  // keys whose values are in the words
};

// Returns the earlier run if its rows must be kept; nullopt if this start repeats that run.
std::optional<EarlierRun> worth_keeping(const config::JobConfig& config, std::int64_t last_step) {
  const std::string reached = "rows up to step " + std::to_string(last_step);
  const auto earlier = earlier_config(config.job.dump_folder);
  if (!earlier) return EarlierRun{"a run (" + reached + ")", {}};
  const auto changes = config::find_changes(config::flatten(*earlier), config);
  if (!changes.empty()) {
    constexpr std::size_t kShown = 3;
    std::vector<std::string> texts = {reached}, keys;
    for (const auto& change : changes) {
      if (keys.size() == kShown) break;
      texts.push_back(change.key + " was " + change.saved + ", is " + change.now);
      keys.push_back(change.key);
    }
    if (changes.size() > kShown) texts.push_back(std::to_string(changes.size() - kShown) + " more");
    return EarlierRun{"another run (" + join(texts, "; ") + ")", std::move(keys)};
  }
  if (last_step < last_step_with_row(config)) return std::nullopt;
  return EarlierRun{"a finished run of this configuration (" + reached + ")", {}};
}

// Says what is left of a run whose dump folder is gone.
std::string what_is_left(const config::JobConfig& config) {
  if (!config::saves_checkpoints(config.checkpoint)) return "The run saved no checkpoints: what it trained is lost";
  const fs::path saved = config::checkpoint_folder(config);
  if (config::is_outside_dump_folder(saved, config))
    return "What it trained since its last checkpoint is lost; in " + saved.string() + " there are " +
           checkpoint::step_list(checkpoint::steps_in(saved)) + ", from which the same command goes on";
  return "Its checkpoints were in that folder. If it was moved, set job.dump_folder to where it is now: a start goes "
         "on from the newest one. If it was removed, a start begins anew";
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

void check_run_folder_is_held(const FileLock& lock, const config::JobConfig& config) {
  const std::string fate = lock.fate();
  if (fate.empty()) return;
  const std::string& folder = config.job.dump_folder;
  throw Error("job.dump_folder = \"" + folder + "\" was removed, moved or replaced while this run wrote there: " +
                  (fs::path(folder) / layout::kLockFile).string() + " " + fate +
                  ". The run stops and writes nothing more there, because another run may have that name by now. " +
                  what_is_left(config),
              kExitFailed);
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
  const auto copied = config.checkpoint.enable ? copied_steps(config) : std::vector<int>();
  if (!copied.empty() && overwrite)
    throw ConfigError("--overwrite begins a run anew, but there are copies of this run in memory (" +
                      checkpoint::step_list(copied) + "), which a start goes on from: move " +
                      config::checkpoint_folder(config).string() + " away, or leave --overwrite out");
  if (!steps.empty() || !copied.empty() || overwrite) return;
  const auto last_step = metrics::last_logged_step(config.job.dump_folder);
  if (!last_step) return;
  const auto found = worth_keeping(config, *last_step);
  if (!found) return;
  std::vector<std::string> keys = found->keys;
  keys.insert(keys.begin(), "job.dump_folder");
  std::string why = "there is no checkpoint to go on from";
  if (!config.checkpoint.enable) {
    why = "checkpoint.enable is false, so it cannot go on from there";
    keys.emplace_back("checkpoint.enable");
  }
  throw ConfigError("job.dump_folder = \"" + config.job.dump_folder + "\" holds " + found->words +
                        ", and this start would begin anew and write over it: " + why +
                        ". Choose another job.dump_folder, or add --overwrite",
                    std::move(keys));
}

CheckpointFolderLock::CheckpointFolderLock(const config::JobConfig& config)
    : folder_(config::checkpoint_folder(config)), is_outside_(config::is_outside_dump_folder(folder_, config)) {
  busy_ = "checkpoint.folder = \"" + config.checkpoint.folder + "\": another run saves in " +
          config::real_path(folder_).string() +
          ", and each would resume from the other's checkpoints and delete them; wait for it, or choose another folder";
  take();
}

void CheckpointFolderLock::renew() {
  const std::scoped_lock guard(mutex_);
  if (lock_ && lock_->is_in_place()) return;
  owner_.reset();
  lock_.reset();
  take();
}

void CheckpointFolderLock::take() {
  try {
    fs::create_directories(folder_);
    lock_ = std::make_unique<FolderLock>(folder_, busy_);
    if (is_outside_) owner_ = std::make_unique<OwnerFile>(folder_ / layout::kCheckpointsOwnerFile, busy_);
  } catch (const ConfigError& error) {
    lock_.reset();
    throw ConfigError(error.what(), {"checkpoint.folder"});
  } catch (const std::system_error&) {
    return;  // the save reports it
  }
}

std::shared_ptr<CheckpointFolderLock> lock_checkpoint_folder(const config::JobConfig& config) {
  if (!config::saves_checkpoints(config.checkpoint)) return nullptr;
  return std::make_shared<CheckpointFolderLock>(config);
}

void sync_rows(const std::string& folder) {
  for (const char* name : {layout::kStepsFile, layout::kValidationsFile, layout::kEvaluationsFile}) {
    const fs::path path = fs::path(folder) / name;
    if (fs::exists(path)) fsync_file(path);  // the first row makes it
  }
  fsync_folder(folder);
}

void write_run_config(const config::JobConfig& config, const std::string& chat_template) {
  const fs::path folder = config.job.dump_folder;
  write_file_atomically(folder / layout::kConfigFile, config::to_toml(config));
  if (chat_template.empty()) {
    fs::remove(folder / layout::kChatTemplateFile);
  } else {
    write_file_atomically(folder / layout::kChatTemplateFile, chat_template);
  }
}

}  // namespace titan::train
