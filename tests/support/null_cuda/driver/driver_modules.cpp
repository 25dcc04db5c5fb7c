// The driver's functions that load and launch what the compiler of nvrtc.cpp makes: kernels are names that are counted.
#include <cuda.h>

#include <mutex>
#include <set>
#include <string>

#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/kernels.h"
#include "tests/support/null_cuda/streams.h"

using namespace titan_null;

namespace {

// Returns a copy of a name that lives as long as the process.
const char* kept(const char* name) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

char module_of_all;

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = reinterpret_cast<CUmodule>(&module_of_all);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(const_cast<char*>(kept(name)));
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 32;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        CUstream stream, void**, void**) {
  if (device_error() == cudaSuccess) launch(reinterpret_cast<const char*>(function), stream_of(stream));
  return static_cast<CUresult>(result(cudaSuccess));
}

}  // extern "C"
