// job.dump_folder: the configuration of one run and the histories of its steps. Rank 0's business, nothing here is
// collective.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/process/file_lock.h"
#include "config/job_config.h"

namespace titan::train {

// Makes job.dump_folder if need be and keeps other runs out while the lock lives: concurrent runs would mistake each
// other's checkpoints for their own and delete them. Throws ConfigError.
std::unique_ptr<FileLock> lock_run_folder(const std::string& folder);

// The last of a whole run's steps that has a row in metrics.jsonl: metrics.log_freq leaves others out.
std::int64_t last_step_with_row(const config::JobConfig& config);

// Before anything in the folder is touched. A start that finds no checkpoint of its own begins anew; where the folder
// has the rows of a finished run then, or of one with another configuration, it throws ConfigError, unless `overwrite`:
// nobody's results go for a start that was not meant. A run that ended before its last step may begin again.
void check_run_folder(const config::JobConfig& config, bool overwrite);

// config.toml, for whoever repeats the run. Once the first step is done: a start that fails before leaves the file of
// the run before it. Throws std::system_error.
void write_run_config(const config::JobConfig& config);

}  // namespace titan::train
