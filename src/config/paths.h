// Checks the files and folders that a configuration names, on this machine. Only for a run that is
// about to start: --dry-run and --print-config need no file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Returns the folder of the run's checkpoints: checkpoint.folder under job.dump_folder, or itself if it is absolute.
std::filesystem::path checkpoint_folder(const JobConfig& config);

// Returns `path` as an absolute one without links, "." and "..", and without a slash at its end. What does not exist is
// taken for folders.
std::filesystem::path real_path(const std::filesystem::path& path);

// True if the run saves checkpoints.
bool saves_checkpoints(const Checkpoint& options);

// True if `folder` is not under job.dump_folder. Follows links.
bool is_outside_dump_folder(const std::filesystem::path& folder, const JobConfig& config);

// Returns the folder with the weights in Hugging Face's format that training starts from; "" if it starts from others.
std::filesystem::path initial_hugging_face_folder(const JobConfig& config);

// Finds paths that are missing or in the way. Creates nothing and opens no file.
std::vector<Fault> find_wrong_paths(const JobConfig& config);

}  // namespace titan::config
