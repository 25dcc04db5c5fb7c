// Keys in the environment: TITAN_TRAINING__STEPS=100 is training.steps, TITAN_TRAINING__DATALOADER__NUM_WORKERS=2 is
// training.dataloader.num_workers. Two underscores stand for a dot. Values are written as on the command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/command_line/command_line.h"

namespace titan::config {

// Names and values.
using Environment = std::vector<std::pair<std::string, std::string>>;

// This process's variables that begin with TITAN_. One with an empty value counts as not set.
Environment titan_variables();

// Whether a variable is a key's: TITAN_ and two underscores further on. The others (TITAN_LOG_SAMPLES) are
// variables.h's.
bool names_a_key(std::string_view variable);

// "training.steps" -> "TITAN_TRAINING__STEPS"
std::string variable_of(std::string_view key);

// The values of keys, sorted by name; other variables are passed over. A variable of an unknown key, or with a value
// that cannot be read, adds to `errors`.
std::vector<Override> parse_environment(const Environment& environment, std::vector<std::string>& errors);

}  // namespace titan::config
