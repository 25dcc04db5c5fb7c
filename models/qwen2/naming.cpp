#include "models/qwen2/naming.h"

#include "models/common/hub/decoder_naming.h"
#include "models/qwen2/flavors.h"

namespace titan::models {
namespace {

const HubFamily kQwen2Family{.architecture = "Qwen2ForCausalLM",
                             .model_type = "qwen2",
                             .false_keys = {"use_sliding_window"},
                             .has_qkv_bias = true,
                             .rotary_pairs = RotaryPairs::kHalves,
                             .kv_heads = 32,
                             .max_positions = 32768};

}  // namespace

ModelNaming qwen2_naming(const HubDecoder& model) {
  ModelNaming naming = decoder_naming(model, kQwen2Family, read_qwen2_config);
  if (!model.shape.block.attention.qkv_bias) naming.misfit = kNoQkvBias;
  return naming;
}

HubDecoder read_qwen2_config(const std::string& config_json, const std::string& what) {
  return read_hub_config(config_json, what, kQwen2Family);
}

}  // namespace titan::models
