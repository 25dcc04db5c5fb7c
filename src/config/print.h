// A configuration as text.
#pragma once

#include <string>

#include "config/job_config.h"

namespace titan::config {

// Every key as TOML, which loads back to an equal configuration. Unset optional keys stand as comments.
std::string to_toml(const JobConfig& config);

// For --help: how to start the program, its flags, then all keys by table, each with its default, its rule and what it
// does.
std::string help_text();

}  // namespace titan::config
