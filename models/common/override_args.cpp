#include "models/common/override_args.h"

#include <string_view>
#include <variant>

#include "config/keys/fields.h"

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

void refuse_other_args(const config::JobConfig& config, const std::set<std::string>& own,
                       const std::map<std::string, std::string>& reasons, std::vector<config::Fault>& errors) {
  constexpr std::string_view kTable = "model.args.";
  const std::set<std::string> of_every_decoder = {"dim",         "n_layers",      "n_heads",
                                                  "n_kv_heads",  "vocab_size",    "norm_eps",
                                                  "rope_theta",  "depth_init",    "enable_weight_tying",
                                                  "max_seq_len", "attn_mask_type"};
  for (const config::Field& field : config::fields()) {
    if (!field.key.starts_with(kTable) || std::holds_alternative<config::None>(field.get(config))) continue;
    const std::string arg = field.key.substr(kTable.size()), table = arg.substr(0, arg.find('.'));
    if (of_every_decoder.contains(arg) || own.contains(table)) continue;
    const auto found = reasons.find(table);
    errors.push_back({field.key + " has no effect on " + config.model.name + ": " +
                          (found == reasons.end() ? "it has no such part" : found->second) + "; remove it",
                      {field.key}});
  }
}

}  // namespace titan::models
