#include "models/llama3/naming.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace titan::models {
namespace {

// Within a block; our wq and wk turn pairs of rows, theirs the two halves of a head.
const std::map<std::string, std::string>& block_names() {
  static const std::map<std::string, std::string> kNames = {
      {"attention.wq", "self_attn.q_proj"},     {"attention.wk", "self_attn.k_proj"},
      {"attention.wv", "self_attn.v_proj"},     {"attention.wo", "self_attn.o_proj"},
      {"feed_forward.w1", "mlp.gate_proj"},     {"feed_forward.w2", "mlp.down_proj"},
      {"feed_forward.w3", "mlp.up_proj"},       {"attention_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
  };
  return kNames;
}

const std::map<std::string, std::string>& other_names() {
  static const std::map<std::string, std::string> kNames = {
      {kLlamaEmbedding, "model.embed_tokens.weight"},
      {"norm.weight", "model.norm.weight"},
      {kLlamaOutput, "lm_head.weight"},
  };
  return kNames;
}

// The other way round.
std::map<std::string, std::string> turned(const std::map<std::string, std::string>& names) {
  std::map<std::string, std::string> result;
  for (const auto& [ours, theirs] : names) result[theirs] = ours;
  return result;
}

}  // namespace

std::optional<std::string> llama_name_from_hugging_face(const std::string& name) {
  static const std::map<std::string, std::string> kInBlock = turned(block_names()), kOutside = turned(other_names());
  if (const auto found = kOutside.find(name); found != kOutside.end()) return found->second;
  constexpr std::string_view kLayers = "model.layers.", kWeight = ".weight";
  const auto dot = name.find('.', std::min(kLayers.size(), name.size()));
  if (!name.starts_with(kLayers) || !name.ends_with(kWeight) || dot == std::string::npos) return std::nullopt;
  const auto number = name.substr(kLayers.size(), dot - kLayers.size());
  if (dot + 1 + kWeight.size() >= name.size() || number.empty() ||
      number.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const auto found = kInBlock.find(name.substr(dot + 1, name.size() - kWeight.size() - dot - 1));
  if (found == kInBlock.end()) return std::nullopt;
  return "layers." + number + "." + found->second + ".weight";
}

HuggingFaceName llama_hugging_face_name(const std::string& fqn, const LlamaArgs& args) {
  if (const auto found = other_names().find(fqn); found != other_names().end()) return {found->second};
  constexpr std::string_view kLayers = "layers.", kWeight = ".weight";
  const auto dot = fqn.find('.', kLayers.size());
  if (fqn.starts_with(kLayers) && fqn.ends_with(kWeight) && dot != std::string::npos) {
    const auto number = fqn.substr(kLayers.size(), dot - kLayers.size());
    const auto inside = fqn.substr(dot + 1, fqn.size() - kWeight.size() - dot - 1);
    if (const auto found = block_names().find(inside); found != block_names().end()) {
      const auto heads = inside == "attention.wq" ? args.n_heads : inside == "attention.wk" ? args.kv_heads() : 0;
      return {"model.layers." + number + "." + found->second + ".weight", heads};
    }
  }
  throw InternalError(fqn + " has no name in Hugging Face's format");
}

// As Python writes a float: transformers refuses whole numbers where it wants one.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
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
  "tie_word_embeddings": false,
  "vocab_size": {}
}}
)",
                     args.head_dim(), args.dim, args.hidden_dim(), args.max_seq_len, args.n_heads, args.n_layers,
                     args.kv_heads(), float_text(args.norm_eps), scaling, float_text(args.rope_theta), args.vocab_size);
}

}  // namespace titan::models
