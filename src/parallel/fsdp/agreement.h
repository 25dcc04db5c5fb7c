// Ranks that build different models (another config file, another program) fail in the first collective with a size
// that does not fit, or hang in one that nobody else calls. This says what differs before it comes to that.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "distributed/process_group.h"

namespace titan::fsdp {

struct ParamFacts {
  std::string fqn;                  // below the root
  std::vector<std::int64_t> shape;  // of the whole parameter
  at::ScalarType dtype;             // as stored
  std::size_t group = 0;            // which fully_shard call took it, numbered in module order from the root on
  std::int64_t shard_dim = 0;
  bool trained = true;  // gradients are reduced for it
};

// Collective over `ranks`: every rank must come with the same list. One all-gather of 8 bytes when all is well. Throws
// DistError, the same on every rank, naming the first parameter that differs and what each rank has, or how the order
// differs.
void check_ranks_agree(const std::vector<ParamFacts>& params, dist::ProcessGroup& ranks);

}  // namespace titan::fsdp
