// Checks that the ranks of a mesh agree on a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "distributed/tensor/sharding.h"

namespace titan::dist {

// Checks that all ranks have the same global shape, placements and dtype, that each local tensor has the shape of its
// box, and that bits are equal along mesh axes with Replicate. Collective over the mesh. Throws the same DistError on
// every rank, naming the first rank that differs, what was expected and what was found.
void check_ranks_agree(const at::Tensor& local, const Sharding& sharding);

}  // namespace titan::dist
