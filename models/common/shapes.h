// Sizes of a decoder and its parts. No torch: commands read them before the engine is loaded.
#pragma once

#include <cstdint>
#include <optional>

#include "facts/model_stats.h"
#include "facts/rope_scaling.h"

namespace titan::models {

// The two elements of a head that the rotary embedding rotates together: neighbors (Llama), or element i and i + E / 2
// (Qwen3, and Hugging Face's format).
enum class RotaryPairs { kNeighbors, kHalves };

struct AttentionShape {
  std::int64_t dim;         // D
  std::int64_t n_heads;     // H
  std::int64_t n_kv_heads;  // K, which divides H
  std::int64_t head_dim;    // E, even
  RotaryPairs rotary_pairs = RotaryPairs::kNeighbors;
  // Epsilon of the RMSNorm over each head of the queries and of the keys; nullopt if they are not normalized.
  std::optional<double> qk_norm_eps = {};
  bool qkv_bias = false;  // the projections to queries, keys and values add a bias
  bool rotates = true;    // false: queries and keys have no position

  bool operator==(const AttentionShape&) const = default;
};

struct BlockShape {
  AttentionShape attention;
  std::int64_t hidden_dim;  // width of the feed-forward
  double norm_eps;

  bool operator==(const BlockShape&) const = default;
};

struct DecoderShape {
  BlockShape block;
  std::int64_t n_layers;
  std::int64_t vocab_size;
  double rope_theta;
  std::optional<RopeScaling> rope_scaling = {};
  bool depth_init = true;     // initial std of output projections by layer depth, not by model depth
  bool tied = false;          // the output projection is the embedding
  bool block_causal = false;  // a token attends only to its own document, not to all earlier tokens of its row
  // Every so many blocks, one does not rotate its queries and keys (NoPE, arXiv:2501.18795). 0: all blocks rotate.
  std::int64_t no_rope_interval = 0;

  bool operator==(const DecoderShape&) const = default;
};

// Returns the shape of block `layer`, from 0.
BlockShape block_of(const DecoderShape& shape, std::int64_t layer);

// Computes the sizes by formula, so that an absurd configuration (billions of layers) is refused before it is built.
ModelStats stats_of(const DecoderShape& shape);

}  // namespace titan::models
