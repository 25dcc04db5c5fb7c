// job.dump_folder holds the configuration of one run and the histories of its steps; checkpoint.folder, which may be
// elsewhere, its checkpoints. Only rank 0 calls these functions; nothing here is collective.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "base/process/file_lock.h"
#include "base/process/owner_file.h"
#include "config/job_config.h"

namespace titan::train {

// Creates job.dump_folder if needed, and keeps other runs out while the lock lives: concurrent runs would mistake each
// other's checkpoints for their own and delete them. Throws ConfigError.
std::unique_ptr<FileLock> lock_run_folder(const std::string& folder);

// Throws Error if the folder that `lock` is in is not at its path any more: somebody removed, moved or replaced it, and
// another run may be there by now, whose files this run must not touch. Any thread may call this.
void check_run_folder_is_held(const FileLock& lock, const config::JobConfig& config);

// Keeps other runs from saving in checkpoint.folder, wherever it is, while this lives: they would resume from each
// other's checkpoints and delete them. A folder that cannot be made, opened or written is not locked: the save that
// follows reports why.
class CheckpointFolderLock {
 public:
  // Creates and locks the folder. Throws ConfigError with the key if another run saves there.
  explicit CheckpointFolderLock(const config::JobConfig& config);

  // Locks the folder that has the name by now if somebody has removed, moved or replaced the locked one. Call it before
  // each save. Throws ConfigError with the key if another run saves there. Any thread may call this.
  void renew();

 private:
  void take();

  std::filesystem::path folder_;
  bool is_outside_;  // of job.dump_folder, whose lock keeps runs on other machines out
  std::string busy_;
  std::mutex mutex_;
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<OwnerFile> owner_;
};

// Returns the lock of the run's checkpoint.folder; null if the run saves nothing. Throws ConfigError.
std::shared_ptr<CheckpointFolderLock> lock_checkpoint_folder(const config::JobConfig& config);

// Writes the histories of steps in `folder` through to the disk. Any thread may call this. Throws std::system_error
// with the path in its text.
void sync_rows(const std::string& folder);

// Returns the last step of a complete run that has a row in metrics.jsonl, which depends on metrics.log_freq.
std::int64_t last_step_with_row(const config::JobConfig& config);

// Protects earlier results; call it before anything in the folder is touched. A start that finds no checkpoint of its
// own begins anew. If the folder has the rows of a finished run or of another configuration then, this throws
// ConfigError, unless `overwrite`. A run that ended before its last step may begin again. Throws ConfigError, too, if
// there are checkpoints and `overwrite` asks to begin anew.
void check_run_folder(const config::JobConfig& config, bool overwrite);

// Writes config.toml, with which the run can be repeated, and beside it the text of its chat template (none if it is
// ""). Call it once the first step is done: a start that fails earlier must keep the files of the run before it. Throws
// std::system_error.
void write_run_config(const config::JobConfig& config, const std::string& chat_template);

}  // namespace titan::train
