// Applies the sections [cpu] and [cuda], which choose the kernels.
#pragma once

#include <c10/core/Device.h>

#include "config/job_config.h"

namespace titan {

// Applies [cpu] to this process. Call it for every device, since any run has a few tensors on the CPU, and before the
// first matmul.
void choose_cpu_code(const config::Cpu& cpu);

// Applies [cuda] to this process. Call it if an accelerator of this type trains, after its module is loaded and before
// the first forward.
void choose_cuda_code(const config::Cuda& cuda, c10::DeviceType type);

}  // namespace titan
