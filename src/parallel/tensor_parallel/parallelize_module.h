// torch.distributed.tensor.parallel.parallelize_module: a plan that says for each module how ranks compute it together.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/tensor_parallel/styles.h"

namespace titan::tp {

// Names below the module that is parallelized, "layers.*.attention.wq": a * stands for one name of the path.
using Plan = std::vector<std::pair<std::string, std::shared_ptr<const ParallelStyle>>>;

// Applies every row to the modules that it names, in the plan's order, before activation checkpointing and fully_shard.
// `mesh` has one axis. The model is on the meta device. Not collective. Throws InternalError for a row that names
// nothing, and for a parameter that no row has placed: it would be whole, and its gradient a part of the truth.
void parallelize_module(nn::Module& module, const dist::DeviceMesh& mesh, const Plan& plan);

}  // namespace titan::tp
