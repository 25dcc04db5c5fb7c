#include "models/common/hub/decoder_naming.h"

#include "models/common/hub/hub_names.h"

namespace titan::models {

ModelNaming decoder_naming(const HubDecoder& model, const HubFamily& family, ReadHubConfig read) {
  const AttentionShape& a = model.shape.block.attention;
  const bool has_neighbors = a.rotary_pairs == RotaryPairs::kNeighbors;
  HubNames names{.outside = {{"tok_embeddings", "model.embed_tokens"}, {"norm", "model.norm"}, {"output", "lm_head"}},
                 .block = {{"attention.wq", "self_attn.q_proj", has_neighbors ? a.n_heads : 0, a.qkv_bias},
                           {"attention.wk", "self_attn.k_proj", has_neighbors ? a.n_kv_heads : 0, a.qkv_bias},
                           {"attention.wv", "self_attn.v_proj", 0, a.qkv_bias},
                           {"attention.wo", "self_attn.o_proj"},
                           {"feed_forward.w1", "mlp.gate_proj"},
                           {"feed_forward.w2", "mlp.down_proj"},
                           {"feed_forward.w3", "mlp.up_proj"},
                           {"attention_norm", "input_layernorm"},
                           {"ffn_norm", "post_attention_layernorm"}}};
  if (a.qk_norm_eps)
    for (const char* norm : {"q_norm", "k_norm"})
      names.block.push_back({std::string("attention.") + norm, std::string("self_attn.") + norm});
  ModelNaming naming;
  set_names(naming, names);
  naming.embedding = "tok_embeddings.weight";
  naming.output = "output.weight";
  naming.is_tied = model.shape.tied;
  naming.config_json = hub_config(model, family);
  naming.differences = [shape = model.shape, read](const std::string& config_json, const std::string& what) {
    return hub_differences(read(config_json, what).shape, shape);
  };
  return naming;
}

}  // namespace titan::models
