#include "tests/support/null_cuda/errors.h"

#include <atomic>

#include "tests/support/null_cuda/settings.h"

namespace titan_null {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<cudaError_t> failed = cudaSuccess;

struct Text {
  cudaError_t error;
  const char* name;
  const char* text;
};

// The errors that this library returns.
constexpr Text kTexts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const Text& text_of(cudaError_t error) {
  static constexpr Text kUnknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  for (const Text& text : kTexts)
    if (text.error == error) return text;
  return kUnknown;
}

}  // namespace

int current_device() { return device_of_thread; }

void set_current_device(int device) { device_of_thread = device; }

cudaError_t result(cudaError_t error) {
  if (failed != cudaSuccess) error = failed;
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

void fail_device(cudaError_t error) { failed = error; }

cudaError_t device_error() { return failed; }

cudaError_t why_no_device() {
  if (settings().driver_version < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  return settings().num_devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

}  // namespace titan_null

using namespace titan_null;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t found = failed != cudaSuccess ? failed.load() : last_error;
  last_error = cudaSuccess;
  return found;
}

cudaError_t cudaPeekAtLastError() { return failed != cudaSuccess ? failed.load() : last_error; }

const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }

const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }

}  // extern "C"
