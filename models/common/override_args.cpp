#include "models/common/override_args.h"

namespace titan::models {

void override_decoder(DecoderShape& shape, const config::ModelArgs& args) {
  AttentionShape& attention = shape.block.attention;
  override_with(attention.dim, args.dim);
  override_with(shape.n_layers, args.n_layers);
  override_with(attention.n_heads, args.n_heads);
  override_with(attention.n_kv_heads, args.n_kv_heads);
  override_with(shape.vocab_size, args.vocab_size);
  override_with(shape.block.norm_eps, args.norm_eps);
  override_with(shape.rope_theta, args.rope_theta);
  override_with(shape.depth_init, args.depth_init);
  override_with(shape.tied, args.enable_weight_tying);
  if (args.attn_mask_type) shape.block_causal = *args.attn_mask_type == "block_causal";
}

void refuse_args(const std::string& model, const std::vector<UnusedArg>& args, std::vector<config::Fault>& errors) {
  for (const auto& [key, is_set, reason] : args) {
    const std::string full = std::string("model.args.") + key;
    if (is_set) errors.push_back({full + " has no effect on " + model + ": " + reason + "; remove it", {full}});
  }
}

}  // namespace titan::models
