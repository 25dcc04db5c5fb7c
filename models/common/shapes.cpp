#include "models/common/shapes.h"

namespace titan::models {

BlockShape block_of(const DecoderShape& shape, std::int64_t layer) {
  BlockShape block = shape.block;
  if (shape.no_rope_interval > 0 && (layer + 1) % shape.no_rope_interval == 0) block.attention.rotates = false;
  return block;
}

ModelStats stats_of(const DecoderShape& shape) {
  const AttentionShape& a = shape.block.attention;
  ModelStats stats{.vocab_size = shape.vocab_size,
                   .dim = a.dim,
                   .hidden_dim = shape.block.hidden_dim,
                   .num_layers = shape.n_layers,
                   .num_heads = a.n_heads,
                   .num_kv_heads = a.n_kv_heads,
                   .head_dim = a.head_dim};
  const auto biases = a.qkv_bias ? (a.n_heads + 2 * a.n_kv_heads) * a.head_dim : 0;
  const auto norms = a.qk_norm_eps ? 2 * a.head_dim : 0;
  const auto attention = a.dim * a.head_dim * 2 * (a.n_heads + a.n_kv_heads) + biases + norms;
  const auto block = attention + 3 * a.dim * shape.block.hidden_dim + 2 * a.dim;
  stats.num_embedding_parameters = shape.vocab_size * a.dim;
  if (shape.tied) stats.num_tied_parameters = stats.num_embedding_parameters;
  stats.num_parameters =
      2 * stats.num_embedding_parameters - stats.num_tied_parameters + shape.n_layers * block + a.dim;
  return stats;
}

}  // namespace titan::models
