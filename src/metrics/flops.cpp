#include "metrics/flops.h"

namespace titan::metrics {

std::int64_t flops_per_token(const ModelStats& stats, std::int64_t seq_len) {
  return 6 * (stats.num_parameters + stats.num_tied_parameters - stats.num_embedding_parameters) +
         6 * stats.num_layers * stats.num_heads * (2 * stats.head_dim) * seq_len;
}

}  // namespace titan::metrics
