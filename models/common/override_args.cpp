#include "models/common/override_args.h"

#include <string_view>
#include <variant>

#include "config/keys/fields.h"
#include "models/common/check_shape.h"
#include "models/common/hub/rope_config.h"

namespace titan::models {

void override_decoder(DecoderShape& shape, const config::ModelArgs& args) {
  AttentionShape& attention = shape.block.attention;
  override_with(attention.dim, args.dim);
  override_with(shape.n_layers, args.n_layers);
  override_with(attention.n_heads, args.n_heads);
  override_with(attention.n_kv_heads, args.n_kv_heads);
  override_with(attention.head_dim, args.head_dim);
  override_with(shape.block.hidden_dim, args.hidden_dim);
  override_with(shape.vocab_size, args.vocab_size);
  override_with(shape.block.norm_eps, args.norm_eps);
  override_with(shape.rope_theta, args.rope_theta);
  override_rope_scaling(shape.rope_scaling, args.rope_scaling_args);
  override_with(shape.depth_init, args.depth_init);
  override_with(shape.tied, args.enable_weight_tying);
  if (args.attn_mask_type) shape.block_causal = *args.attn_mask_type == "block_causal";
}

void divide_width(AttentionShape& attention, const config::ModelArgs& args) {
  if (args.head_dim) return;
  attention.head_dim = attention.dim / attention.n_heads;
  check_divided_width(attention);
}

void override_rope_scaling(std::optional<RopeScaling>& scaling, const config::RopeScalingArgs& args) {
  if (args == config::RopeScalingArgs{}) return;
  if (!scaling) scaling.emplace();
  if (args.type) scaling->type = rope_scaling_type(*args.type).value();
  override_with(scaling->scaling_factor, args.scaling_factor);
  override_with(scaling->low_freq_factor, args.low_freq_factor);
  override_with(scaling->high_freq_factor, args.high_freq_factor);
  override_with(scaling->original_max_position_embeddings, args.original_max_position_embeddings);
  override_with(scaling->beta_fast, args.beta_fast);
  override_with(scaling->beta_slow, args.beta_slow);
  if (args.attention_factor) scaling->attention_factor = args.attention_factor;
  if (scaling->scaling_factor == 1 && scaling->attention_factor.value_or(1) == 1) scaling.reset();
}

void refuse_other_args(const config::JobConfig& config, const std::set<std::string>& own,
                       std::vector<config::Fault>& errors) {
  constexpr std::string_view kTable = "model.args.";
  constexpr const char* kWidth = "model.args.hidden_dim is the width of the feed-forward";
  // Keys that not every decoder has, and why not.
  const std::map<std::string, std::string> reasons = {
      {"multiple_of", kWidth},
      {"ffn_dim_multiplier", kWidth},
      {"qk_norm", "queries and keys are not normalized"},
      {"qkv_bias", "queries, keys and values have no biases"},
      {"no_rope_layer_interval", "all blocks have a rotary embedding"},
  };
  for (const config::Field& field : config::fields()) {
    if (!field.key.starts_with(kTable) || std::holds_alternative<config::None>(field.get(config))) continue;
    const auto reason = reasons.find(field.key.substr(kTable.size()));
    if (reason == reasons.end() || own.contains(reason->first)) continue;
    errors.push_back(
        {field.key + " has no effect on " + config.model.name + ": " + reason->second + "; remove it", {field.key}});
  }
}

}  // namespace titan::models
