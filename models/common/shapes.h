// Sizes of the parts of a decoder. No torch: commands read them before the engine is loaded.
#pragma once

#include <cstdint>

namespace titan::models {

struct AttentionShape {
  std::int64_t dim;         // D
  std::int64_t n_heads;     // H
  std::int64_t n_kv_heads;  // K, which divides H
  std::int64_t head_dim;    // E, even
};

struct BlockShape {
  AttentionShape attention;
  std::int64_t hidden_dim;  // width of the feed-forward
  double norm_eps;
};

}  // namespace titan::models
