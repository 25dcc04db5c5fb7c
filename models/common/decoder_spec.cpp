#include "models/common/decoder_spec.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "models/common/decoder.h"
#include "models/common/hub/hub_names.h"
#include "models/common/parallelize.h"

namespace titan::models {

ModelNaming decoder_naming(const HubDecoder& model, const HubFamily& family, ReadHubConfig read) {
  const AttentionShape& a = model.shape.block.attention;
  const bool has_neighbors = a.rotary_pairs == RotaryPairs::kNeighbors;
  HubNames names{.outside = {{"tok_embeddings", "model.embed_tokens"}, {"norm", "model.norm"}, {"output", "lm_head"}},
                 .block = {{"attention.wq", "self_attn.q_proj", has_neighbors ? a.n_heads : 0},
                           {"attention.wk", "self_attn.k_proj", has_neighbors ? a.n_kv_heads : 0},
                           {"attention.wv", "self_attn.v_proj"},
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
  naming.differences = [shape = model.shape, family, read](const std::string& config_json, const std::string& what) {
    return hub_differences(read(config_json, what).shape, shape, family);
  };
  return naming;
}

TrainSpec decoder_spec(const std::string& name, const HubDecoder& model, std::int64_t seq_len, ModelNaming naming) {
  TrainSpec spec;
  spec.name = name;
  spec.max_seq_len = model.max_seq_len;
  spec.stats = stats_of(model.shape);
  spec.separates_documents = model.shape.block_causal;
  spec.build_model = [shape = model.shape, seq_len](std::optional<std::int64_t> document_end) {
    return std::make_unique<Decoder>(shape, seq_len, document_end);
  };
  spec.passes = decoder_passes();
  spec.naming = std::move(naming);
  return spec;
}

TrainSpec decoder_spec_of_job(const config::Model& job, const HubDecoder& model, std::int64_t seq_len,
                              ModelNaming naming) {
  const std::string name = job.name + " " + job.flavor;
  if (seq_len > model.max_seq_len)
    spdlog::warn("training.seq_len ({}) is longer than the {} tokens that {} is made for", seq_len, model.max_seq_len,
                 name);
  return decoder_spec(name, model, seq_len, std::move(naming));
}

}  // namespace titan::models
