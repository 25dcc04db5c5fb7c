// The factors of the rotary position embedding (apply_rotary_emb() in nn/ops/fused_ops.h), with Llama 3.1's frequency
// scaling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace titan::nn {

// Llama 3.1: wavelengths above original_max_position / low_freq_factor are stretched by `scaling_factor`, those below
// original_max_position / high_freq_factor are kept, those between are blended.
struct RopeScaling {
  double scaling_factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 8192;
};

// complex64 [seq_len, head_dim / 2] on `device`, computed in float32.
at::Tensor precompute_freqs_cis(std::int64_t head_dim, std::int64_t seq_len, double theta,
                                const std::optional<RopeScaling>& scaling, at::Device device);

}  // namespace titan::nn
