// Finds the folders of runs that a command line names.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job_config.h"

namespace titan::runs {

struct RunFolder {
  std::filesystem::path path;  // job.dump_folder: it has metrics.jsonl
  std::string name;            // path below the common parent folder of all runs; if alone: the folder's own name
};

// Finds the runs of `paths`. Each is a run's folder, a checkpoint inside it (checkpoint/ or checkpoint/step-N),
// its metrics.jsonl, or a folder that directly contains runs, such as a sweep's. Returns each run once, in the
// order of `paths`, and sorted by path within a folder. Throws DataError for a path without a run.
std::vector<RunFolder> find_runs(std::span<const std::string> paths);

// Returns the configuration that the run in the folder was started with; nullopt if config.toml is
// missing or cannot be read, with the reason in `why`.
std::optional<config::JobConfig> read_run_config(const std::filesystem::path& folder, std::string& why);

// A key whose values differ between configurations.
struct ConfigDifference {
  std::string key;
  std::vector<std::string> values;  // as TOML writes them, one per configuration
};

// Returns the keys that differ, in the order of job_config.h. Skips the keys that say where a run
// is stored: job.config_file and job.dump_folder.
std::vector<ConfigDifference> differences(std::span<const config::JobConfig> configs);

// Returns the keys whose values are not the defaults, each with the default first and the value after it.
std::vector<ConfigDifference> changes_from_defaults(const config::JobConfig& config);

}  // namespace titan::runs
