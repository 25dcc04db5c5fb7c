// What lies in a run's folder, for the commands that look at one from outside.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tools/inspect_run.h"
#include "config/job_config.h"

namespace titan {

// The run whose job.dump_folder `folder` is: one with a config.toml, or with a folder checkpoint of steps. Nothing for
// another folder. Throws CheckpointError for a config.toml that cannot be read.
std::optional<checkpoint::RunInfo> find_run(const std::filesystem::path& folder);

// Of the run that a step folder, or the folder of its steps, belongs to; nothing where there are none.
std::vector<checkpoint::LoggedStep> rows_of_run(const std::filesystem::path& folder);

// "dp_shard 2 x tp 2", on `ranks` ranks; "" where `ranks` is not known or does not fit.
std::string mesh_text(const config::Parallelism& parallelism, std::optional<std::int64_t> ranks);

// `path`, or of a folder of steps or a run the newest complete one. Throws CheckpointError where all steps are
// incomplete or damaged.
std::filesystem::path newest_checkpoint(const std::filesystem::path& path);

}  // namespace titan
