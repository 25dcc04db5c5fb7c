#include "models/qwen3/spec.h"

#include "models/common/decoder_spec.h"
#include "models/qwen3/flavors.h"

namespace titan::models {
namespace {

const HubFamily kFamily{.architecture = kQwen3Architecture,
                        .model_type = "qwen3",
                        .false_keys = {"attention_bias", "use_sliding_window"},
                        .has_qk_norm = true,
                        .rotary_pairs = RotaryPairs::kHalves,
                        .kv_heads = 32,
                        .head_dim = 128,
                        .max_positions = 32768};

HubDecoder read_config(const std::string& config_json, const std::string& what) {
  return read_hub_config(config_json, what, kFamily);
}

ModelNaming naming_of(const HubDecoder& model) {
  ModelNaming naming = decoder_naming(model, kFamily, read_config);
  if (!model.shape.block.attention.qk_norm_eps) naming.misfit = kNoQkNorm;
  return naming;
}

}  // namespace

ModelNaming qwen3_naming() {
  config::Model model;
  model.name = "qwen3";
  return naming_of({qwen3_shape(model), kQwen3MaxSeqLen});
}

TrainSpec qwen3_spec(const config::Model& model, std::int64_t seq_len) {
  const HubDecoder decoder{qwen3_shape(model), model.args.max_seq_len.value_or(kQwen3MaxSeqLen)};
  return decoder_spec_of_job(model, decoder, seq_len, naming_of(decoder));
}

TrainSpec qwen3_spec_of_hugging_face(const std::string& config_json, const std::string& what,
                                     std::optional<std::int64_t> seq_len) {
  const HubDecoder decoder = read_config(config_json, what);
  return decoder_spec(what, decoder, seq_len.value_or(decoder.max_seq_len), naming_of(decoder));
}

}  // namespace titan::models
