// Functions of CUDA's runtime about memory, and copies.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/null_cuda/device_memory.h"
#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/observer.h"
#include "tests/support/null_cuda/settings.h"
#include "tests/support/null_cuda/streams.h"
#include "tests/support/null_cuda/trace.h"

using namespace titan_null;

namespace {

// Copies in the order of a stream. As with CUDA, the host waits if one side is memory of the host that can be paged.
cudaError_t copy(void* to, const void* from, std::size_t size, Stream& stream, const char* function) {
  const Kind source = place_of(from).kind, target = place_of(to).kind;
  const bool is_staged = source == Kind::kNone || target == Kind::kNone;
  const bool is_read = source == Kind::kDevice && target != Kind::kDevice;
  const bool is_within = source == Kind::kDevice && target == Kind::kDevice;
  if (is_within) size = std::min(size, settings().moved);
  note_work();
  count_call(function);
  if (is_staged) count_wait("copy of pageable memory");
  stream.run([=] {
    if (device_error() != cudaSuccess) return;
    if (is_read && settings().reads_zeros)
      std::memset(to, 0, size);
    else
      std::memmove(to, from, size);
  });
  if (is_staged) stream.wait();
  return result(cudaSuccess);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t size) {
  count_call("cudaMalloc");
  if (device_error() != cudaSuccess) return result(cudaSuccess);
  *address = allocate_on_device(current_device(), size);
  return result(*address ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* address) {
  if (!address) return result(cudaSuccess);
  count_call("cudaFree");
  wait_for_device(current_device());
  return result(release(address) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void** address, size_t size, cudaStream_t) { return cudaMalloc(address, size); }

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  stream_of(stream).run([address] { release(address); });
  return result(cudaSuccess);
}

cudaError_t cudaHostAlloc(void** address, size_t size, unsigned) {
  count_call("cudaHostAlloc");
  if (device_error() != cudaSuccess) return result(cudaSuccess);
  *address = allocate_pinned(size);
  return result(*address ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* address) {
  return result(!address || release(address) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void* address, size_t size, unsigned) {
  count_call("cudaHostRegister");
  remember(address, size, Kind::kPinned, 0);
  return result(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* address) {
  forget(address);
  return result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = settings().memory;
  *free = settings().memory - used_on(current_device());
  return result(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* to, const void* address) {
  const Place place = place_of(address);
  *to = {};
  to->type = place.kind == Kind::kDevice   ? cudaMemoryTypeDevice
             : place.kind == Kind::kPinned ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
  to->device = place.device;
  to->devicePointer = place.kind == Kind::kNone ? nullptr : const_cast<void*>(address);
  to->hostPointer = place.kind == Kind::kDevice ? nullptr : const_cast<void*>(address);
  return result(cudaSuccess);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
  count_wait("cudaMemcpy");
  Stream& stream = stream_of(nullptr);
  copy(to, from, size, stream, "cudaMemcpy");
  stream.wait();
  return result(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, size, stream_of(stream), "cudaMemcpyAsync");
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t stream) {
  return copy(to, from, size, stream_of(stream), "cudaMemcpyPeerAsync");
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row)
    copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
         stream_of(stream), "cudaMemcpy2DAsync");
  return result(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t size, cudaStream_t stream) {
  note_work();
  count_call("cudaMemsetAsync");
  stream_of(stream).run([=] { fill(address, value, size); });
  return result(cudaSuccess);
}

cudaError_t cudaMemset(void* address, int value, size_t size) {
  cudaMemsetAsync(address, value, size, nullptr);
  return result(cudaSuccess);
}

// Pools exist for torch's other allocator only, which nothing here uses.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static int pools[64];
  *pool = reinterpret_cast<cudaMemPool_t>(&pools[device]);
  return result(cudaSuccess);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return result(cudaSuccess); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  std::memset(value, 0, sizeof(std::uint64_t));
  return result(cudaSuccess);
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return result(cudaSuccess); }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return result(cudaSuccess); }

// Memory and events of other processes are not reached.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return result(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return result(cudaErrorNotSupported); }
cudaError_t cudaIpcCloseMemHandle(void*) { return result(cudaErrorNotSupported); }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return result(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) { return result(cudaErrorNotSupported); }

}  // extern "C"
