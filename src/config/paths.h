// Checks of the files and folders that a configuration names, for the machine at hand. Only for a run that is to start:
// --dry-run and --print-config need no file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Where the run's checkpoints lie: checkpoint.folder under job.dump_folder, or by itself where it is absolute.
std::filesystem::path checkpoint_folder(const JobConfig& config);

// What is missing or in the way. Creates nothing and opens no file.
std::vector<Fault> find_wrong_paths(const JobConfig& config);

}  // namespace titan::config
