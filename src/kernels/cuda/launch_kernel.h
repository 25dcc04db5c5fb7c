// Launches kernels by a function instead of <<<...>>>, so that a C++ compiler takes their source, too: tests run it on
// the host, where sanitizers see each thread of a block (tests/support/host_lanes/).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace titan::cuda {

struct Grid {
  std::int64_t blocks;
  int threads;             // of a block
  std::size_t shared = 0;  // bytes of dynamic shared memory of a block
};

// Queues a kernel on `stream` and returns CUDA's last error, which it resets.
template <typename... Params, typename... Args>
cudaError_t launch_kernel(const Grid& grid, cudaStream_t stream, void (*kernel)(Params...), const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, args...);
  return cudaGetLastError();
}

}  // namespace titan::cuda
