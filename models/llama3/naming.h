// Describes the Llama family in Hugging Face's format: parameter names and config.json (LlamaForCausalLM).
#pragma once

#include <string>
#include <vector>

#include "facts/model_naming.h"
#include "models/llama3/flavors.h"

namespace titan::models {

inline constexpr const char* kLlamaArchitecture = "LlamaForCausalLM";

// Returns the Hugging Face names of a model of this shape.
ModelNaming llama_naming(const LlamaArgs& args);

// Returns the config.json of a model of this shape.
std::string llama_hugging_face_config(const LlamaArgs& args);

// Returns the shape described by a config.json of kLlamaArchitecture, or of a Mistral without a sliding window, which
// is the same model. Missing keys get transformers' defaults. `what` names the file in errors. Throws ConfigError for a
// missing size and for unsupported features (biases, other activations, other rotary scalings).
LlamaArgs llama_args_from_hugging_face(const std::string& config_json, const std::string& what);

// Returns the values that differ and change the model's results, each with our key.
std::vector<HubDifference> llama_differences(const LlamaArgs& theirs, const LlamaArgs& ours);

}  // namespace titan::models
