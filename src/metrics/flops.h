// Floating-point operations per token.
#pragma once

#include <cstdint>

#include "facts/model_stats.h"

namespace titan::metrics {

// Returns the FLOPs of forward and backward for one token: 6 per non-embedding parameter, and attention over the full
// square of the sequence (causal masking does not halve it, recomputation adds nothing). The convention of the PaLM
// paper and of TorchTitan. A tied output projection counts, as it multiplies; TorchTitan 0.2.2 leaves it out. A frozen
// parameter counts 4, as it has no gradient.
std::int64_t flops_per_token(const ModelStats& stats, std::int64_t seq_len);

}  // namespace titan::metrics
