// Asks all ranks whether a pass without training must end early.
#pragma once

#include <ATen/ATen.h>

#include "base/process/signal.h"
#include "distributed/process_group.h"

namespace titan::train {

// True if some rank was asked to stop, maybe one of those that share a batch. All ranks learn it at the same call.
// Collective over `world`.
inline bool some_rank_must_stop(dist::ProcessGroup& world) {
  auto count = at::full({1}, std::int64_t{stop_requested().has_value()}, at::TensorOptions().dtype(at::kLong));
  world.all_reduce(count, dist::ReduceOp::kSum).wait();
  return count.item<std::int64_t>() > 0;
}

}  // namespace titan::train
