// Stands for CUDA's header, and for the compiler's own words, where a C++ compiler compiles kernels (host_lanes.h).
#pragma once

#include <functional>

#include "tests/support/host_lanes/cuda_runtime_api.h"

#define __device__
#define __global__
#define __launch_bounds__(...)
#define __shared__ thread_local  // all threads of a block are fibers of one thread of the host

namespace titan::test {

template <unsigned (*value)()>
struct OfThread {
  struct {
    operator unsigned() const { return value(); }
  } x;
};

using Kernel = void (*)();
cudaError_t set_most_shared(Kernel kernel, int bytes);
// Runs a kernel, or sets CUDA's last error if a device would refuse to.
cudaError_t launch(const cudaLaunchConfig_t& config, Kernel kernel, const std::function<void()>& body);

}  // namespace titan::test

inline constexpr titan::test::OfThread<titan::test::thread_index> threadIdx;
inline constexpr titan::test::OfThread<titan::test::block_index> blockIdx;
inline constexpr titan::test::OfThread<titan::test::num_blocks> gridDim;

template <typename... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute, int value) {
  return titan::test::set_most_shared(reinterpret_cast<titan::test::Kernel>(kernel), value);
}

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), const Args&... args) {
  return titan::test::launch(*config, reinterpret_cast<titan::test::Kernel>(kernel), [&] { kernel(args...); });
}

inline void __syncthreads() { titan::test::sync_block(); }
inline float __shfl_xor_sync(unsigned, float value, int apart) { return titan::test::shuffled(value, apart); }
