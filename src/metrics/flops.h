// Arithmetic per token and what devices can do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace titan::metrics {

struct ModelSize {
  std::int64_t num_params = 0;            // of the whole, unsharded model
  std::int64_t num_embedding_params = 0;  // of the token table; the output projection is not one
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
};

// Forward and backward of one token: 6 per parameter that multiplies, and attention over the full square of the
// sequence (causal masking does not halve it, recomputation adds nothing). The convention of the PaLM paper and of
// TorchTitan.
std::int64_t flops_per_token(const ModelSize& size, std::int64_t seq_len);

// The dense peak in FLOP/s that the vendor states for the named device and dtype ("bfloat16", "float16"). Nothing for a
// device or dtype that is not in the table: a utilization against another device's peak would be a lie.
std::optional<double> device_peak_flops(std::string_view device_name, std::string_view dtype);

}  // namespace titan::metrics
