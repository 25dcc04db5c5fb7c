// The tensor parallelism of a Llama (TorchTitan's apply_tp).
#pragma once

#include "config/job_config.h"
#include "parallel/tensor_parallel/parallelize_module.h"

namespace titan::models {

// Returns the plan of parallelize_module(). Uses disable_loss_parallel and enable_async_tensor_parallel.
tp::Plan llama_tensor_parallel_plan(const config::Parallelism& parallelism);

}  // namespace titan::models
