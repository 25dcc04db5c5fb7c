// Kernels: their registration by the code that nvcc writes, and launches.
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/support/null_cuda/device_memory.h"
#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/kernels.h"
#include "tests/support/null_cuda/observer.h"
#include "tests/support/null_cuda/settings.h"
#include "tests/support/null_cuda/streams.h"
#include "tests/support/null_cuda/trace.h"

using namespace titan_null;

namespace {

struct Variable {
  std::size_t size = 0;
  void* address = nullptr;  // null before it is first asked for
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> kernels;  // names, by the address of the host's function
  std::map<const void*, Variable> variables;             // by the address of the host's variable
};

Registry& registry() {
  static auto& all = *new Registry;
  return all;
}

// Holds what <<<grid, block, shared, stream>>> says until the host's function of the kernel takes it.
struct Configuration {
  dim3 grid, block;
  std::size_t shared = 0;
  void* stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

const char* name_of(const void* function) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.kernels.find(function);
  return found == all.kernels.end() ? "unknown kernel" : found->second;
}

// Waits for ever, as a kernel that does not end.
void hang() {
  for (;;) ::pause();
}

}  // namespace

void titan_null::launch(const char* kernel, Stream& stream) {
  note_work();
  const long number = count_launch(kernel);
  if (is_faulty("kill", number)) ::kill(::getpid(), SIGKILL);
  if (is_faulty("illegal_access", number)) fail_device(cudaErrorIllegalAddress);
  if (is_faulty("hang_kernel", number)) stream.run_beside(hang);
}

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels[function] = name;
}

void __cudaRegisterVar(void**, char* variable, char*, const char*, int, size_t size, int, int) {
  const std::lock_guard lock(registry().mutex);
  registry().variables[variable].size = size;
}

void __cudaRegisterManagedVar(void**, void** variable, char*, const char*, int, size_t size, int, int) {
  *variable = allocate_pinned(size);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return result(cudaErrorInvalidValue);
  const Configuration found = configurations.back();
  configurations.pop_back();
  *grid = found.grid;
  *block = found.block;
  *shared = found.shared;
  *static_cast<void**>(stream) = found.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t stream) {
  if (device_error() == cudaSuccess) launch(name_of(function), stream_of(stream));
  return result(cudaSuccess);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function, void** arguments) {
  return cudaLaunchKernel(function, {}, {}, arguments, 0, configuration->stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* to, const void*) {
  std::memset(to, 0, sizeof(*to));
  to->maxThreadsPerBlock = 1024;
  to->numRegs = 32;
  to->ptxVersion = to->binaryVersion = settings().major * 10 + settings().minor;
  to->maxDynamicSharedSizeBytes = 48 << 10;
  return result(cudaSuccess);
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return result(cudaSuccess); }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return result(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return result(cudaSuccess);
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  Variable& variable = all.variables[symbol];
  if (!variable.address) variable.address = allocate_pinned(std::max<std::size_t>(variable.size, 1));
  *address = variable.address;
  return result(cudaSuccess);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind) {
  void* address = nullptr;
  cudaGetSymbolAddress(&address, symbol);
  std::memcpy(static_cast<char*>(address) + offset, from, size);
  return result(cudaSuccess);
}

}  // extern "C"
