// Reads keys from the environment: TITAN_TRAINING__STEPS=100 is training.steps,
// TITAN_TRAINING__DATALOADER__NUM_WORKERS=2 is training.dataloader.num_workers. Two underscores mean a dot. Values are
// written as on the command line.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/command_line/command_line.h"

namespace titan::config {

// Names and values.
using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns this process's variables that begin with TITAN_. A variable with an empty value counts as not set.
Environment titan_variables();

// True if a variable sets a key: it has two underscores after TITAN_. variables.h lists the others
// (TITAN_LOG_SAMPLES).
bool names_a_key(std::string_view variable);

// Returns the variable of a key: "training.steps" -> "TITAN_TRAINING__STEPS".
std::string variable_of(std::string_view key);

// Returns the values of keys, sorted by variable name; skips other variables. Appends to `errors` for an unknown key
// and for a value that cannot be parsed.
std::vector<Override> parse_environment(const Environment& environment, std::vector<std::string>& errors);

}  // namespace titan::config
