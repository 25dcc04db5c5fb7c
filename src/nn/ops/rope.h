// The factors of the rotary position embedding (apply_rotary_emb() in nn/ops/fused_ops.h), with scaled frequencies
// (facts/rope_scaling.h) as transformers' modeling_rope_utils.py computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "facts/rope_scaling.h"

namespace titan::nn {

// Returns complex64 [seq_len, head_dim / 2] on `device`, computed in float32. The absolute values are 1, and with YaRN
// its attention factor.
at::Tensor precompute_freqs_cis(std::int64_t head_dim, std::int64_t seq_len, double theta,
                                const std::optional<RopeScaling>& scaling, at::Device device);

}  // namespace titan::nn
