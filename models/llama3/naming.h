// Describes the Llama family in Hugging Face's format: parameter names and config.json (LlamaForCausalLM).
#pragma once

#include <string>

#include "facts/model_naming.h"
#include "models/common/hub/hugging_face_config.h"

namespace titan::models {

// Returns the Hugging Face names of a model of this shape.
ModelNaming llama_naming(const HubDecoder& model);

// Returns the model described by a config.json of LlamaForCausalLM, or of a Mistral without a sliding window, which is
// the same model. See read_hub_config().
HubDecoder read_llama_config(const std::string& config_json, const std::string& what);

}  // namespace titan::models
