// Keys in the environment: TITAN_TRAINING__STEPS=100 is training.steps, TITAN_TRAINING__DATALOADER__NUM_WORKERS=2 is
// training.dataloader.num_workers. Two underscores stand for a dot. Values are written as on the command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/command_line.h"

namespace titan::config {

// Names and values.
using Environment = std::vector<std::pair<std::string, std::string>>;

// This process's variables that name a key: TITAN_ and two underscores further on. The program's other variables
// (TITAN_LOG_SAMPLES) have no two underscores. A variable with an empty value counts as not set.
Environment key_variables();

// "training.steps" -> "TITAN_TRAINING__STEPS"
std::string variable_of(std::string_view key);

// Sorted by name. A variable of an unknown key, or with a value that cannot be read, adds to `errors`.
std::vector<Override> parse_environment(const Environment& environment, std::vector<std::string>& errors);

}  // namespace titan::config
