#include "metrics/flops.h"

namespace titan::metrics {

std::int64_t flops_per_token(const ModelStats& stats, std::int64_t seq_len) {
  const std::int64_t all = stats.num_parameters + stats.num_tied_parameters - stats.num_embedding_parameters;
  const std::int64_t frozen =
      stats.num_frozen_parameters == 0
          ? 0
          : stats.num_frozen_parameters + stats.num_tied_parameters - stats.num_embedding_parameters;
  return 6 * all - 2 * frozen + 6 * stats.num_layers * stats.num_heads * (2 * stats.head_dim) * seq_len;
}

}  // namespace titan::metrics
