#include "models/llama3/naming.h"

#include <spdlog/fmt/fmt.h>

#include "models/common/hub_names.h"

namespace titan::models {
namespace {

// Returns a float as Python writes it: transformers rejects integers for float keys.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

ModelNaming llama_naming(const LlamaArgs& args) {
  ModelNaming naming;
  set_names(naming,
            {.outside = {{"tok_embeddings", "model.embed_tokens"}, {"norm", "model.norm"}, {"output", "lm_head"}},
             .block = {{"attention.wq", "self_attn.q_proj", args.n_heads},
                       {"attention.wk", "self_attn.k_proj", args.kv_heads()},
                       {"attention.wv", "self_attn.v_proj"},
                       {"attention.wo", "self_attn.o_proj"},
                       {"feed_forward.w1", "mlp.gate_proj"},
                       {"feed_forward.w2", "mlp.down_proj"},
                       {"feed_forward.w3", "mlp.up_proj"},
                       {"attention_norm", "input_layernorm"},
                       {"ffn_norm", "post_attention_layernorm"}}});
  naming.embedding = "tok_embeddings.weight";
  naming.output = "output.weight";
  naming.is_tied = args.tied;
  naming.config_json = llama_hugging_face_config(args);
  naming.differences = [args](const std::string& config_json, const std::string& what) {
    return llama_differences(llama_args_from_hugging_face(config_json, what), args);
  };
  return naming;
}

std::string llama_hugging_face_config(const LlamaArgs& args) {
  const auto scaling = args.rope_scaling ? fmt::format(R"({{
    "factor": {},
    "high_freq_factor": {},
    "low_freq_factor": {},
    "original_max_position_embeddings": {},
    "rope_type": "llama3"
  }})",
                                                       float_text(args.rope_scaling->scaling_factor),
                                                       float_text(args.rope_scaling->high_freq_factor),
                                                       float_text(args.rope_scaling->low_freq_factor),
                                                       args.rope_scaling->original_max_position_embeddings)
                                         : "null";
  return fmt::format(R"({{
  "architectures": ["LlamaForCausalLM"],
  "attention_bias": false,
  "head_dim": {},
  "hidden_act": "silu",
  "hidden_size": {},
  "intermediate_size": {},
  "max_position_embeddings": {},
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": {},
  "num_hidden_layers": {},
  "num_key_value_heads": {},
  "rms_norm_eps": {},
  "rope_scaling": {},
  "rope_theta": {},
  "tie_word_embeddings": {},
  "vocab_size": {}
}}
)",
                     args.head_dim(), args.dim, args.hidden_dim(), args.max_seq_len, args.n_heads, args.n_layers,
                     args.kv_heads(), float_text(args.norm_eps), scaling, float_text(args.rope_theta), args.tied,
                     args.vocab_size);
}

}  // namespace titan::models
