// Names of the Llama family in Hugging Face's transformers: parameters, and config.json (LlamaForCausalLM).
#pragma once

#include <string>
#include <vector>

#include "facts/model_naming.h"
#include "models/llama3/flavors.h"

namespace titan::models {

inline constexpr const char* kLlamaArchitecture = "LlamaForCausalLM";

// Returns how a model of this shape is called there.
ModelNaming llama_naming(const LlamaArgs& args);

// Returns the config.json of a model of this shape.
std::string llama_hugging_face_config(const LlamaArgs& args);

// Returns the shape that a config.json of kLlamaArchitecture describes, or one of a Mistral without a sliding window,
// which is the same model. Keys that it leaves out have transformers' defaults. `what` names the file in errors. Throws
// ConfigError for a missing size, and for what this Llama does not have (biases, other activations and rotary
// scalings).
LlamaArgs llama_args_from_hugging_face(const std::string& config_json, const std::string& what);

// Returns where the two differ in what changes a model's numbers, each with our key.
std::vector<HubDifference> llama_differences(const LlamaArgs& theirs, const LlamaArgs& ours);

}  // namespace titan::models
