// Arithmetic per token and what devices can do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "contract/model_stats.h"

namespace titan::metrics {

// Forward and backward of one token: 6 per parameter that multiplies, and attention over the full square of the
// sequence (causal masking does not halve it, recomputation adds nothing). The convention of the PaLM paper and of
// TorchTitan.
std::int64_t flops_per_token(const ModelStats& stats, std::int64_t seq_len);

// The dense peak in FLOP/s that the vendor states for the named device and dtype ("bfloat16", "float16"). Nothing for a
// device or dtype that is not in the table: a utilization against another device's peak would be a lie.
std::optional<double> device_peak_flops(std::string_view device_name, std::string_view dtype);

}  // namespace titan::metrics
