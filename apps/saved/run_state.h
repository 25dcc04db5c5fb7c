// Reads the state of a run from its folder, for commands that inspect runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tools/inspect_run.h"
#include "config/job_config.h"

namespace titan {

// Returns the run whose job.dump_folder is `folder`: it has a config.toml, checkpoints or logged steps. nullopt for
// other folders. Throws CheckpointError for a config.toml that cannot be read.
std::optional<checkpoint::RunInfo> find_run(const std::filesystem::path& folder);

// Returns the logged steps of the run whose job.dump_folder is `folder`; empty if there are none.
std::vector<checkpoint::LoggedStep> rows_of_run(const std::filesystem::path& folder);

// Returns the mesh on `ranks` ranks, "dp_shard 2 x tp 2"; "" if `ranks` is not known or does not fit.
std::string mesh_text(const config::Parallelism& parallelism, std::optional<std::int64_t> ranks);

// Returns the newest complete checkpoint of a run or of a folder of steps; any other `path` is returned unchanged.
// Throws CheckpointError if a run has no checkpoint, or if all steps are incomplete or damaged.
std::filesystem::path newest_checkpoint(const std::filesystem::path& path);

}  // namespace titan
