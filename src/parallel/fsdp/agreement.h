// Checks that all ranks have built the same model. Ranks with different models (another config file, another program)
// would fail in the first collective with a size that does not fit, or hang in one that no other rank calls.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "distributed/process_group.h"

namespace titan::fsdp {

struct ParamFacts {
  std::string fqn;                  // name below the root
  std::vector<std::int64_t> shape;  // full shape
  at::ScalarType dtype;             // as stored
  std::size_t group = 0;            // index of the fully_shard call that took it, in module order from the root on
  std::int64_t shard_dim = 0;
  bool trained = true;  // gradients are reduced for it
};

// Checks that every rank has the same list. Collective over `ranks`; costs one all-gather of 8 bytes if they agree.
// Throws DistError, the same on every rank, naming the first parameter that differs and what each rank has, or how
// the order differs.
void check_ranks_agree(const std::vector<ParamFacts>& params, dist::ProcessGroup& ranks);

}  // namespace titan::fsdp
