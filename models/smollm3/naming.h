// Describes SmolLM3 in Hugging Face's format: parameter names and config.json (SmolLM3ForCausalLM).
#pragma once

#include <string>

#include "facts/model_naming.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Returns the Hugging Face names of a model of this shape.
ModelNaming smollm3_naming(const HubDecoder& model);

// Returns the model described by a config.json. See read_hub_config().
HubDecoder read_smollm3_config(const std::string& config_json, const std::string& what);

}  // namespace titan::models
