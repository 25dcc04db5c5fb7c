// A CUDA driver without a GPU (libcuda.so.1): returns values from the environment, and computes nothing.
//
//   STUB_CUDA_VERSION   result of cuDriverGetVersion: 12040 is CUDA 12.4
//   STUB_CUDA_DEVICES   number of devices
//   STUB_CUDA_VIRTUAL   number of devices, from the first, that have virtual memory management
#include <cstdlib>

namespace {

int from_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }

int cuDriverGetVersion(int* version) {
  *version = from_environment("STUB_CUDA_VERSION");
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = from_environment("STUB_CUDA_DEVICES");
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  constexpr int kVirtualMemory = 102;
  *value = attribute == kVirtualMemory && device < from_environment("STUB_CUDA_VIRTUAL") ? 1 : 0;
  return 0;
}
}
