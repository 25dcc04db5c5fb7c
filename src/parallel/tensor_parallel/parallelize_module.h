// torch.distributed.tensor.parallel.parallelize_module: applies a plan that gives each module its parallel style.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/tensor_parallel/styles.h"

namespace titan::tp {

// Maps names below the parallelized module to their style: "layers.*.attention.wq", where * stands for one name of
// the path.
using Plan = std::vector<std::pair<std::string, std::shared_ptr<const ParallelStyle>>>;

// Applies every row to the modules that it names, in the plan's order. Call before activation checkpointing and
// fully_shard. `mesh` has one axis. The model is on the meta device. Not collective. Throws InternalError for a row
// that names nothing, and for a parameter that no row has placed: each rank would have all of it, but only a term of
// its gradient.
void parallelize_module(nn::Module& module, const dist::DeviceMesh& mesh, const Plan& plan);

}  // namespace titan::tp
