// Reads and writes the rotary embedding in config.json of Hugging Face's transformers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "facts/rope_scaling.h"

namespace titan::models {

struct RopeConfig {
  double theta = 10000;
  std::optional<RopeScaling> scaling = {};
};

// Returns the rotary embedding of a config.json: both generations of the format and mixtures of them, as transformers 5
// reads them. `max_positions` is the default of the original length, `theta` that of the base. Appends what cannot be
// built here to `faults`. Throws ConfigError for a value of the wrong type.
RopeConfig read_rope(const nlohmann::json& config, std::int64_t max_positions, double theta,
                     std::vector<std::string>& faults);

// Returns the value of "rope_scaling", as text: a table, or "null" without scaling.
std::string rope_scaling_json(const std::optional<RopeScaling>& scaling);

// Returns the name of a type, as transformers and [model.args] write it: "yarn".
const char* name_of(RopeScalingType type);

// Returns the type of that name; nullopt for one that is not built here.
std::optional<RopeScalingType> rope_scaling_type(const std::string& name);

}  // namespace titan::models
