// The Llama family in Hugging Face's transformers: names of parameters, and config.json (LlamaForCausalLM).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts/model_naming.h"
#include "models/llama3/flavors.h"

namespace titan::models {

inline constexpr const char* kLlamaArchitecture = "LlamaForCausalLM";
inline constexpr const char* kLlamaEmbedding = "tok_embeddings.weight";
inline constexpr const char* kLlamaOutput = "output.weight";

// "model.layers.3.self_attn.q_proj.weight" -> "layers.3.attention.wq.weight"; nothing for a name that is no
// parameter's.
std::optional<std::string> llama_name_from_hugging_face(const std::string& name);

// "layers.3.attention.wq.weight" -> "model.layers.3.self_attn.q_proj.weight". Throws InternalError for a name that is
// no parameter of the model.
HuggingFaceName llama_hugging_face_name(const std::string& fqn, const LlamaArgs& args);

std::string llama_hugging_face_config(const LlamaArgs& args);

// The shape that a config.json of kLlamaArchitecture describes, or of a Mistral without a sliding window, which is the
// same, with transformers' own defaults for keys that it leaves out. `what` names the file in errors. Throws
// ConfigError for a missing size, and for what this Llama does not have (biases, other activations and rotary
// scalings).
LlamaArgs llama_args_from_hugging_face(const std::string& config_json, const std::string& what);

// Returns where the two differ in what changes a model's numbers, each with our key.
std::vector<HuggingFaceDifference> llama_differences(const LlamaArgs& theirs, const LlamaArgs& ours);

}  // namespace titan::models
