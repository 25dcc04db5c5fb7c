// NCCL's communicators, groups and errors.
#include <sys/random.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/nccl/nccl_comm.h"
#include "tests/support/null_cuda/trace.h"

using namespace titan_null;

namespace {

std::string name_of(const ncclUniqueId& id) {
  std::string name = "/titan_null_nccl_";
  for (int i = 0; i < 8; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(id.internal[i]));
    name += digits;
  }
  return name;
}

ncclResult_t connect(ncclComm_t* comm, const std::string& name, int size, int rank) {
  count_call("ncclCommInit");
  if (device_error() != cudaSuccess) return fail(ncclUnhandledCudaError, cudaGetErrorString(device_error()));
  if (size > kMostRanks) return fail(ncclInvalidArgument, "null NCCL: more ranks than it knows");
  auto made = std::make_shared<Communicator>(name, rank, size, current_device());
  if (const int other = made->segment.duplicate(); other >= 0)
    return fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                                      std::to_string(other) + " both on CUDA device " + std::to_string(made->device));
  *comm = new ncclComm{made};
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  return ::getrandom(id->internal, 8, 0) == 8 ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return connect(comm, name_of(id), size, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  return connect(comm, name_of(id), size, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int, ncclUniqueId* ids, ncclConfig_t*) {
  return connect(comm, name_of(ids[0]), size, rank);
}

// Several devices of one process: only one of them can be connected here.
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int count, const int*) {
  if (count != 1) return fail(ncclInvalidUsage, "null NCCL: one device per process");
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  return connect(comm, name_of(id), 1, 0);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  Communicator& all = *comm->shared;
  struct Wish {
    int color, key, rank;
  };
  const Wish own{color, key, all.rank};
  std::vector<Wish> wishes(static_cast<std::size_t>(all.size));
  run_in_turn(all, [&] {
    all.segment.exchange(
        reinterpret_cast<const char*>(&own), sizeof(own), /*tag=*/0xf000000000000000, [&] { return all.goes_on(); },
        [&](std::size_t, std::size_t, const auto& block) {
          for (int rank = 0; rank < all.size; ++rank)
            std::memcpy(&wishes[static_cast<std::size_t>(rank)], block(rank), sizeof(Wish));
        });
  });
  if (!all.goes_on()) return fail(ncclInvalidUsage, "null NCCL: a split ended early");
  const std::string name = all.name + "_" + std::to_string(++all.num_splits) + "_" + std::to_string(color);
  *made = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::erase_if(wishes, [&](const Wish& wish) { return wish.color != color; });
  std::stable_sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) { return a.key < b.key; });
  const auto place =
      std::find_if(wishes.begin(), wishes.end(), [&](const Wish& wish) { return wish.rank == all.rank; });
  return connect(made, name, static_cast<int>(wishes.size()), static_cast<int>(place - wishes.begin()));
}

ncclResult_t ncclCommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int) {
  return fail(ncclInvalidUsage, "null NCCL: communicators do not shrink");
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  count_call("ncclCommAbort");
  comm->shared->is_aborted = true;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->shared->error;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->shared->size;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->shared->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->shared->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  start_group();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return end_group(); }

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) { return end_group(); }

ncclResult_t ncclMemAlloc(void** address, size_t size) {
  return cudaMalloc(address, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* address) {
  return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void* bytes, size_t, void** handle) {
  *handle = bytes;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int) {
  return fail(ncclInvalidUsage, "null NCCL: no windows");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t error) {
  switch (error) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_reason(); }

}  // extern "C"
