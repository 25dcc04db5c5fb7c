#include "models/smollm3/naming.h"

#include "models/common/hub/decoder_naming.h"

namespace titan::models {
namespace {

const HubFamily kSmolLM3Family{.architecture = "SmolLM3ForCausalLM",
                               .model_type = "smollm3",
                               .false_keys = {"attention_bias", "mlp_bias", "use_sliding_window"},
                               .null_keys = {"bos_token_id", "eos_token_id", "pad_token_id"},
                               .tied = true,
                               .rotary_pairs = RotaryPairs::kHalves,
                               .rope_theta = 2e6,
                               .kv_heads = 4,
                               .no_rope_interval = 4,
                               .max_positions = 32768};

}  // namespace

ModelNaming smollm3_naming(const HubDecoder& model) {
  return decoder_naming(model, kSmolLM3Family, read_smollm3_config);
}

HubDecoder read_smollm3_config(const std::string& config_json, const std::string& what) {
  return read_hub_config(config_json, what, kSmolLM3Family);
}

}  // namespace titan::models
