// Functions of CUDA's runtime about devices.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/support/null_cuda/device_memory.h"
#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/settings.h"
#include "tests/support/null_cuda/streams.h"
#include "tests/support/null_cuda/trace.h"

using namespace titan_null;

namespace {

const char* name_of_device() {
  if (settings().major == 9) return "NVIDIA H100 80GB HBM3";
  return settings().major == 8 ? "NVIDIA A100-SXM4-80GB" : "NVIDIA null device";
}

bool is_device(int device) { return device >= 0 && device < settings().num_devices; }

// Fills the properties with those of an H100, as far as programs read them.
void describe(cudaDeviceProp& to, int device) {
  std::memset(&to, 0, sizeof(to));
  std::snprintf(to.name, sizeof(to.name), "%s", name_of_device());
  to.uuid.bytes[14] = static_cast<char>(settings().machine);
  to.uuid.bytes[15] = static_cast<char>(device + 1);
  to.totalGlobalMem = settings().memory;
  to.sharedMemPerBlock = 48 << 10;
  to.sharedMemPerBlockOptin = 227 << 10;
  to.sharedMemPerMultiprocessor = 228 << 10;
  to.reservedSharedMemPerBlock = 1 << 10;
  to.regsPerBlock = to.regsPerMultiprocessor = 64 << 10;
  to.warpSize = 32;
  to.memPitch = 0x7fffffff;
  to.maxThreadsPerBlock = 1024;
  to.maxThreadsDim[0] = to.maxThreadsDim[1] = 1024;
  to.maxThreadsDim[2] = 64;
  to.maxGridSize[0] = 0x7fffffff;
  to.maxGridSize[1] = to.maxGridSize[2] = 65535;
  to.totalConstMem = 64 << 10;
  to.major = settings().major;
  to.minor = settings().minor;
  to.textureAlignment = 512;
  to.texturePitchAlignment = 32;
  to.multiProcessorCount = 132;
  to.canMapHostMemory = to.concurrentKernels = to.ECCEnabled = to.unifiedAddressing = 1;
  to.pciBusID = 0x10 + device;
  to.asyncEngineCount = 3;
  to.memoryBusWidth = 5120;
  to.l2CacheSize = 50 << 20;
  to.maxThreadsPerMultiProcessor = 2048;
  to.maxBlocksPerMultiProcessor = 32;
  to.streamPrioritiesSupported = to.globalL1CacheSupported = to.localL1CacheSupported = 1;
  to.managedMemory = to.concurrentManagedAccess = to.computePreemptionSupported = 1;
  to.cooperativeLaunch = to.hostRegisterSupported = to.memoryPoolsSupported = to.unifiedFunctionPointers = 1;
  to.clusterLaunch = settings().major >= 9;
}

// Returns an attribute, numbered alike in the driver and the runtime; 0 for those that no program here asks for.
int attribute_of(int attribute, int device) {
  cudaDeviceProp all;
  describe(all, device);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return all.maxThreadsPerBlock;
    case cudaDevAttrMaxBlockDimX:
      return all.maxThreadsDim[0];
    case cudaDevAttrMaxBlockDimY:
      return all.maxThreadsDim[1];
    case cudaDevAttrMaxBlockDimZ:
      return all.maxThreadsDim[2];
    case cudaDevAttrMaxGridDimX:
      return all.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return all.maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
      return all.maxGridSize[2];
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(all.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(all.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(all.sharedMemPerMultiprocessor);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(all.reservedSharedMemPerBlock);
    case cudaDevAttrWarpSize:
      return all.warpSize;
    case cudaDevAttrMaxRegistersPerBlock:
      return all.regsPerBlock;
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return all.regsPerMultiprocessor;
    case cudaDevAttrMultiProcessorCount:
      return all.multiProcessorCount;
    case cudaDevAttrClockRate:
      return 1980000;
    case cudaDevAttrMemoryClockRate:
      return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth:
      return all.memoryBusWidth;
    case cudaDevAttrL2CacheSize:
      return all.l2CacheSize;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return all.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return all.maxBlocksPerMultiProcessor;
    case cudaDevAttrComputeCapabilityMajor:
      return all.major;
    case cudaDevAttrComputeCapabilityMinor:
      return all.minor;
    case cudaDevAttrPciBusId:
      return all.pciBusID;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return 1;
    case cudaDevAttrClusterLaunch:
      return all.clusterLaunch;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const auto error = why_no_device(); error != cudaSuccess) return result(error);
  *count = settings().num_devices;
  return result(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  if (const auto error = why_no_device(); error != cudaSuccess) return result(error);
  *device = current_device();
  return result(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (const auto error = why_no_device(); error != cudaSuccess) return result(error);
  if (!is_device(device)) return result(cudaErrorInvalidDevice);
  set_current_device(device);
  return result(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int device) {
  if (!is_device(device)) return result(cudaErrorInvalidDevice);
  describe(*to, device);
  return result(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_device(device)) return result(cudaErrorInvalidDevice);
  *value = attribute_of(attribute, device);
  return result(cudaSuccess);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute_of(static_cast<int>(attribute), device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(size), "%s", name_of_device());
  return CUDA_SUCCESS;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", 0x10 + device);
  return result(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  count_wait("cudaDeviceSynchronize");
  wait_for_device(current_device());
  return result(cudaSuccess);
}

cudaError_t cudaDeviceCanAccessPeer(int* answer, int device, int peer) {
  *answer = device != peer;
  return result(cudaSuccess);
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return result(cudaSuccess); }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return result(cudaSuccess);
}

cudaError_t cudaProfilerStart() { return result(cudaSuccess); }
cudaError_t cudaProfilerStop() { return result(cudaSuccess); }

// Looks a function of the driver up by name; some are versions that only the header's macros name.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  static void* const self = [] {
    Dl_info info = {};
    ::dladdr(reinterpret_cast<const void*>(&cudaDriverGetVersion), &info);
    return ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  *function = nullptr;
  for (const char* version : {"_v2", "_v3", ""})
    if (!*function && self) *function = ::dlsym(self, (std::string(name) + version).c_str());
  if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return result(*function ? cudaSuccess : cudaErrorSymbolNotFound);
}

}  // extern "C"
