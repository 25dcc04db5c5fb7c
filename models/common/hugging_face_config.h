// What every config.json of Hugging Face's transformers has.
#pragma once

#include <string>

namespace titan::models {

// "LlamaForCausalLM". Throws ConfigError for a text that is not JSON or does not say; it names no file.
std::string architecture_of(const std::string& config_json);

}  // namespace titan::models
