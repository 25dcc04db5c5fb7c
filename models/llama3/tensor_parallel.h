// How the ranks along the axis tp compute a Llama together (TorchTitan's apply_tp).
#pragma once

#include "config/job_config.h"
#include "parallel/tensor_parallel/parallelize_module.h"

namespace titan::models {

// `parallelism`: disable_loss_parallel.
tp::Plan llama_tensor_parallel_plan(const config::Parallelism& parallelism);

}  // namespace titan::models
