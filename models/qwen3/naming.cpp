#include "models/qwen3/naming.h"

#include "models/common/hub/decoder_naming.h"
#include "models/qwen3/flavors.h"

namespace titan::models {
namespace {

const HubFamily kQwen3Family{.architecture = "Qwen3ForCausalLM",
                             .model_type = "qwen3",
                             .false_keys = {"attention_bias", "use_sliding_window"},
                             .has_qk_norm = true,
                             .rotary_pairs = RotaryPairs::kHalves,
                             .kv_heads = 32,
                             .head_dim = 128,
                             .max_positions = 32768};

}  // namespace

ModelNaming qwen3_naming(const HubDecoder& model) {
  ModelNaming naming = decoder_naming(model, kQwen3Family, read_qwen3_config);
  if (!model.shape.block.attention.qk_norm_eps) naming.misfit = kNoQkNorm;
  return naming;
}

HubDecoder read_qwen3_config(const std::string& config_json, const std::string& what) {
  return read_hub_config(config_json, what, kQwen3Family);
}

}  // namespace titan::models
