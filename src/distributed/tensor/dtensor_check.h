// Do the ranks of a mesh mean the same tensor?
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/tensor/sharding.h"

namespace titan::dist {

// Collective over the mesh: every rank must have the same global shape, placements and dtype, a local tensor of the
// shape that its box has, and along a mesh axis with Replicate the same bits. Throws the same DistError on every rank,
// naming the first one that differs, what was expected and what was found.
void check_ranks_agree(const at::Tensor& local, const Sharding& sharding);

}  // namespace titan::dist
