// Which code computes: the sections [cpu] and [cuda].
#pragma once

#include "config/job_config.h"

namespace titan {

// For the process, whatever device trains: a few tensors are on the CPU in any run. Call it before the first matrix
// product.
void choose_cpu_code(const config::Cpu& cpu);

// For the process, where an accelerator trains. Call it before the first forward.
void choose_cuda_code(const config::Cuda& cuda);

}  // namespace titan
