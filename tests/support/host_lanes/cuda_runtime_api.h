// Stands for CUDA's header where a C++ compiler compiles kernels (host_lanes.h). It has what they use, and no more.
#pragma once

#include <cstddef>

#include "tests/support/host_lanes/host_lanes.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
using cudaStream_t = struct CUstream_st*;

struct dim3 {
  constexpr dim3(unsigned count = 1) : x(count) {}
  unsigned x;
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

cudaError_t cudaGetLastError();
