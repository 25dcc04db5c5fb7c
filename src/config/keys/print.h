// Prints a configuration as TOML.
#pragma once

#include <optional>
#include <string>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Prints every key; loading the text gives an equal configuration. Unset optional keys are comments.
std::string to_toml(const JobConfig& config);

// Same, with each value's origin in a comment behind it.
std::string to_toml(const JobConfig& config, const Origins& origins);

// Prints only the keys whose values are not the defaults, without job.config_file, which a copy does not have.
std::string changed_to_toml(const JobConfig& config);

}  // namespace titan::config
