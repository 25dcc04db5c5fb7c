// Which code computes on the CPU: the section [cpu].
#pragma once

#include "config/job_config.h"

namespace titan {

// For the process, whatever device trains: a few tensors are on the CPU in any run. Call it before the first matrix
// product.
void choose_cpu_code(const config::Cpu& cpu);

}  // namespace titan
