#include "models/llama3/naming.h"

#include "base/error.h"
#include "models/common/hub/decoder_naming.h"

namespace titan::models {
namespace {

constexpr const char *kLlamaArchitecture = "LlamaForCausalLM", *kMistralArchitecture = "MistralForCausalLM";

HubFamily family_of(const std::string& architecture) {
  HubFamily family{
      .architecture = kLlamaArchitecture, .model_type = "llama", .false_keys = {"attention_bias", "mlp_bias"}};
  if (architecture != kMistralArchitecture) return family;
  family.architecture = kMistralArchitecture;
  family.kv_heads = 8;
  family.max_positions = 4096 * 32;
  family.window = 4096;
  return family;
}

std::string architecture_or_llama(const std::string& config_json) {
  try {
    return architecture_of(config_json);
  } catch (const ConfigError&) {
    return kLlamaArchitecture;  // read_hub_config() says what is wrong
  }
}

}  // namespace

ModelNaming llama_naming(const HubDecoder& model) {
  return decoder_naming(model, family_of(kLlamaArchitecture), read_llama_config);
}

HubDecoder read_llama_config(const std::string& config_json, const std::string& what) {
  return read_hub_config(config_json, what, family_of(architecture_or_llama(config_json)));
}

}  // namespace titan::models
