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
  std::string name;            // what tells it from the others of the list; alone: the folder's own name
};

// Each of `paths` is a run's folder, a checkpoint inside it (checkpoint/ or checkpoint/step-N), its metrics.jsonl, or a
// folder that has runs directly inside it, such as a sweep's. By path inside a folder, in the order of `paths`, each
// once. Throws DataError for a path without a run.
std::vector<RunFolder> find_runs(std::span<const std::string> paths);

// The configuration that the run in the folder was started with; nothing where config.toml is missing or cannot be
// read, and `why` says so then.
std::optional<config::JobConfig> read_run_config(const std::filesystem::path& folder, std::string& why);

// A key whose values differ among configurations.
struct ConfigDifference {
  std::string key;
  std::vector<std::string> values;  // as TOML writes them, one for each configuration
};

// In the order of job_config.h. Left out are the keys that say where a run lies: job.config_file and job.dump_folder.
std::vector<ConfigDifference> differences(std::span<const config::JobConfig> configs);

// The keys of one configuration whose values are not the defaults, with the default first and the value after it.
std::vector<ConfigDifference> changes_from_defaults(const config::JobConfig& config);

}  // namespace titan::runs
