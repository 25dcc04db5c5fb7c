#include "kernels/cuda/fill_uniform.h"
#include "kernels/cuda/launch_kernel.h"

namespace titan::cuda {
// The namespace has a name because nvcc names an anonymous one after the file's path, and the same source must give
// the same bytes in every folder.
inline namespace fill_kernels {

constexpr int kThreads = 256;
// Enough blocks to fill any device; a grid-stride loop covers the rest of a large tensor.
constexpr std::int64_t kMaxBlocks = 2048;

__global__ void __launch_bounds__(kThreads) fill_uniform_kernel(float* out, Fill fill, std::int64_t groups) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; group < groups;
       group += stride) {
    fill_group(fill, group, out);
  }
}

}  // namespace fill_kernels

cudaError_t launch_fill_uniform(float* out, const Fill& fill, cudaStream_t stream) {
  const std::int64_t groups = num_groups(fill);
  if (groups == 0) return cudaSuccess;
  const std::int64_t blocks = (groups + kThreads - 1) / kThreads;
  return launch_kernel({blocks < kMaxBlocks ? blocks : kMaxBlocks, kThreads}, stream, fill_uniform_kernel, out, fill,
                       groups);
}

}  // namespace titan::cuda
