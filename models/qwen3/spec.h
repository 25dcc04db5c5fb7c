// Builds the TrainSpec of Qwen3 for the registry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan::models {

inline constexpr const char* kQwen3Architecture = "Qwen3ForCausalLM";

// Returns the Hugging Face names, the same for all flavors.
ModelNaming qwen3_naming();

// Returns the spec of the [model] section. Warns if `seq_len` is longer than the model supports. Throws ConfigError.
TrainSpec qwen3_spec(const config::Model& model, std::int64_t seq_len);

// Returns the spec of a config.json; `what` names the file. `seq_len` defaults to its longest sequence. Throws
// ConfigError.
TrainSpec qwen3_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                     std::optional<std::int64_t> seq_len);

}  // namespace titan::models
