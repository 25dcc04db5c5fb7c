// A configuration as text.
#pragma once

#include <optional>
#include <string>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Every key as TOML, which loads back to an equal configuration. Unset optional keys stand as comments.
std::string to_toml(const JobConfig& config);

// As above, and behind each value a comment: where it came from.
std::string to_toml(const JobConfig& config, const Origins& origins);

// The keys alone whose values are not the defaults. Without job.config_file, which a copy would not be.
std::string changed_to_toml(const JobConfig& config);

}  // namespace titan::config
