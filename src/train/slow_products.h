// Warns that the dtype of a run is slow on this processor.
#pragma once

#include <c10/core/DeviceType.h>

#include <string>

#include "config/job_config.h"

namespace titan::train {

// True if matmuls in `dtype` run at this processor's speed. 16-bit matmuls left to ATen are dozens of times slower than
// float32's if the processor has no instructions for them.
bool has_fast_products(c10::ScalarType dtype);

// Returns one line: training.mixed_precision_param is slow on this processor, and what to set. Empty if it is not
// slow, and on a GPU. Call it after the kernels are chosen.
std::string slow_products_warning(const config::JobConfig& config, c10::DeviceType device_type);

}  // namespace titan::train
