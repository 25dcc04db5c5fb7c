// Reads keys that every config.json of Hugging Face's transformers has.
#pragma once

#include <string>

namespace titan::models {

// Returns the architecture, "LlamaForCausalLM". Throws ConfigError, without a file name, if the text is not JSON or
// names no architecture.
std::string architecture_of(const std::string& config_json);

}  // namespace titan::models
