#include <map>
#include <utility>

#include "tests/support/host_lanes/cuda_runtime.h"

namespace titan::test {
namespace {

// These are the limits of compute capability 9.0: bytes of shared memory of a block, without and with the attribute.
constexpr std::size_t kShared = 48 << 10, kMostShared = 227 << 10;
constexpr unsigned kMostThreads = 1024;

cudaError_t g_last = cudaSuccess;
std::map<Kernel, std::size_t> g_most_shared;

cudaError_t refused(const cudaLaunchConfig_t& config, Kernel kernel) {
  if (config.gridDim.x == 0 || config.blockDim.x == 0 || config.blockDim.x > kMostThreads)
    return cudaErrorInvalidConfiguration;
  const auto most = g_most_shared.find(kernel);
  return config.dynamicSmemBytes > (most == g_most_shared.end() ? kShared : most->second) ? cudaErrorInvalidValue
                                                                                          : cudaSuccess;
}

}  // namespace

cudaError_t set_most_shared(Kernel kernel, int bytes) {
  if (bytes < 0 || static_cast<std::size_t>(bytes) > kMostShared) return g_last = cudaErrorInvalidValue;
  g_most_shared[kernel] = static_cast<std::size_t>(bytes);
  return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, Kernel kernel, const std::function<void()>& body) {
  const cudaError_t error = refused(config, kernel);
  if (error != cudaSuccess) return g_last = error;
  run_kernel({config.gridDim.x, config.blockDim.x, config.dynamicSmemBytes}, body);
  return cudaSuccess;
}

}  // namespace titan::test

cudaError_t cudaGetLastError() { return std::exchange(titan::test::g_last, cudaSuccess); }
