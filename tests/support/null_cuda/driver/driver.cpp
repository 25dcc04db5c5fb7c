// CUDA's driver (libcuda.so.1), as far as torch and this program use it: devices, contexts, virtual memory.
#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/support/null_cuda/device_memory.h"
#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/settings.h"
#include "tests/support/null_cuda/streams.h"
#include "tests/support/null_cuda/trace.h"

using namespace titan_null;

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

// Memory that cuMemCreate gave, which has no address of its own. Its pages are made where it is mapped, so that memory
// loses its contents when it is unmapped: torch's allocator maps each handle once.
struct Part {
  int device;
  std::size_t size;
  int references;
};

struct Parts {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Part> all;
  CUmemGenericAllocationHandle last = 0;
};

Parts& parts() {
  static auto& known = *new Parts;
  return known;
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUcontext context_of(int device) {
  static char contexts[64];
  return reinterpret_cast<CUcontext>(&contexts[device]);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return settings().num_devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

CUresult cuDriverGetVersion(int* version) {
  *version = settings().driver_version;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = settings().num_devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = settings().memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof(*uuid));
  uuid->bytes[14] = static_cast<char>(settings().machine);
  uuid->bytes[15] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = cudaGetErrorName(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(current_device());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuCtxPopCurrent(CUcontext* context) { return cuCtxGetCurrent(context); }

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* to, CUpointer_attribute attribute, CUdeviceptr address) {
  const Place place = place_of(pointer(address));
  if (place.kind == Kind::kNone) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    *static_cast<unsigned*>(to) = place.kind == Kind::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
    *static_cast<int*>(to) = place.device;
  else
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* size, CUdeviceptr address) {
  const Place place = place_of(pointer(address));
  if (place.kind == Kind::kNone) return CUDA_ERROR_INVALID_VALUE;
  if (begin) *begin = reinterpret_cast<CUdeviceptr>(place.begin);
  if (size) *size = place.size;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
  void* const found =
      ::mmap(nullptr, size + kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<CUdeviceptr>(found);
  *address = (begin + kGranularity - 1) / kGranularity * kGranularity;
  // The ends are cut off, so that cuMemAddressFree() has the whole.
  if (*address > begin) ::munmap(found, *address - begin);
  ::munmap(pointer(*address + size), begin + kGranularity - *address);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  ::munmap(pointer(address), size);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long) {
  count_call("cuMemCreate");
  const int device = properties->location.id;
  if (!take(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(parts().mutex);
  *handle = ++parts().last;
  parts().all[*handle] = {device, size, 1};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(parts().mutex);
  const auto found = parts().all.find(handle);
  if (found == parts().all.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.references > 0) return CUDA_SUCCESS;
  give_back(found->second.device, found->second.size);
  parts().all.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  const std::lock_guard lock(parts().mutex);
  const auto found = parts().all.find(handle);
  if (found == parts().all.end()) return CUDA_ERROR_INVALID_VALUE;
  if (::mprotect(pointer(address), size, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  remember(pointer(address), size, Kind::kDevice, found->second.device);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  count_call("cuMemUnmap");
  for (auto at = address; at < address + size;) {
    const Place place = place_of(pointer(at));
    if (place.kind == Kind::kNone) return CUDA_ERROR_INVALID_VALUE;
    forget(place.begin);
    at += place.size;
  }
  ::mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  stream_of(stream).run([=] { std::fill_n(static_cast<unsigned*>(pointer(address)), count, value); });
  return CUDA_SUCCESS;
}

}  // extern "C"
