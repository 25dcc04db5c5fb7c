// Fills CUDA memory with counter-based random numbers. No torch here or in the source: nvcc compiles this in seconds.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/fill_groups.h"

namespace titan::cuda {

// Queues the fill of `out` [fill.numel] float32, memory of the current device, on `stream`. Returns the launch's error;
// an empty fill launches nothing.
cudaError_t launch_fill_uniform(float* out, const Fill& fill, cudaStream_t stream);

}  // namespace titan::cuda
