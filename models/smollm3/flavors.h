// Shapes of SmolLM3: a Llama whose every fourth block has no rotary embedding.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "models/catalog.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Returns the flavors by name. `model` is "smollm3".
std::vector<std::string> smollm3_flavor_names(const std::string& model);
// Returns values to start from.
std::vector<Start> smollm3_starts(const std::string& model);

// Appends the keys of [model.args] that SmolLM3 does not have, and contradictions among the others.
void check_smollm3_args(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Returns the flavor of [model] with the overrides of [model.args]. Throws ConfigError for an unknown flavor or an
// invalid shape.
HubDecoder smollm3_decoder(const config::Model& model);

}  // namespace titan::models
