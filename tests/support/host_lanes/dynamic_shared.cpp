// Defines the memory that the kernels' `extern __shared__` arrays refer to.
#include <span>

#include "tests/support/host_lanes/host_lanes.h"

namespace titan::cuda {
inline namespace fused_row_kernels {
thread_local float own_columns[16 << 10];
}
}  // namespace titan::cuda

std::span<float> titan::test::dynamic_shared_memory() { return titan::cuda::own_columns; }
