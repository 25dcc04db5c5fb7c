// NCCL's collectives, and sends and receives.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "tests/support/null_cuda/nccl/nccl_comm.h"
#include "tests/support/null_cuda/nccl/nccl_sums.h"
#include "tests/support/null_cuda/settings.h"

using namespace titan_null;

namespace {

enum Kind : std::uint64_t { kAllReduce = 1, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

// Factors of operations that programs made, by their number after NCCL's own; NaN where one is free.
struct Factors {
  std::mutex mutex;
  std::vector<double> all;
};

Factors& factors() {
  static auto& known = *new Factors;
  return known;
}

Reduction reduction_of(ncclRedOp_t op, const Communicator& comm, ncclDataType_t type) {
  const bool is_average_of_fractions = op == ncclAvg && type >= ncclFloat16;
  if (op < ncclNumOps) return {op, is_average_of_fractions ? 1.0 / comm.size : 1.0};
  const std::lock_guard lock(factors().mutex);
  return {ncclSum, factors().all.at(static_cast<std::size_t>(op - ncclNumOps))};
}

// Exchanges bytes for a collective. Ranks whose calls differ would hang, or mix their bytes: said at once instead.
void exchange(Communicator& comm, Kind kind, const void* bytes, std::size_t size, ncclDataType_t type,
              std::uint64_t how, const Segment::Read& read) {
  const std::uint64_t tag = kind << 60 | static_cast<std::uint64_t>(type) << 56 | how << 48 | (size & 0xffffffffffff);
  const int other = comm.segment.exchange(
      static_cast<const char*>(bytes), std::min(size, settings().moved), tag, [&] { return comm.goes_on(); }, read);
  if (other < 0) return;
  const std::string text = "null NCCL: ranks " + std::to_string(comm.rank) + " and " + std::to_string(other) +
                           " of a communicator call different collectives, or with different sizes";
  std::fprintf(stderr, "%s\n", text.c_str());
  comm.error = fail(ncclInvalidUsage, text);
}

// Reduces the part of the blocks that lies in [begin, end) of each rank's bytes to `to`, which begins at `begin`.
Segment::Read reduce_part(const Communicator& comm, std::size_t begin, std::size_t end, ncclDataType_t type,
                          Reduction how, void* to) {
  return [=, &comm](std::size_t offset, std::size_t length, const std::function<const char*(int)>& block) {
    const std::size_t first = std::max(offset, begin), last = std::min(offset + length, end);
    if (first >= last) return;
    const char* parts[kMostRanks];
    for (int rank = 0; rank < comm.size; ++rank) parts[rank] = block(rank) + (first - offset);
    reduce(parts, comm.size, (last - first) / size_of(type), type, how, static_cast<char*>(to) + (first - begin));
  };
}

ncclResult_t collective(const char* name, ncclComm_t comm, cudaStream_t stream,
                        std::function<void(Communicator&)> work) {
  return submit(name, {comm->shared, stream, std::move(work)});
}

}  // namespace

extern "C" {

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const Reduction how = reduction_of(op, *comm->shared, type);
  return collective("ncclAllReduce", comm, stream, [=](Communicator& at) {
    const std::size_t size = count * size_of(type);
    exchange(at, kAllReduce, from, size, type, how.kind, reduce_part(at, 0, size, type, how, to));
  });
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const Reduction how = reduction_of(op, *comm->shared, type);
  return collective("ncclReduce", comm, stream, [=](Communicator& at) {
    const std::size_t size = count * size_of(type);
    exchange(at, kReduce, from, size, type, static_cast<std::uint64_t>(root),
             reduce_part(at, 0, at.rank == root ? size : 0, type, how, to));
  });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const Reduction how = reduction_of(op, *comm->shared, type);
  return collective("ncclReduceScatter", comm, stream, [=](Communicator& at) {
    const std::size_t size = count * size_of(type), begin = size * static_cast<std::size_t>(at.rank);
    exchange(at, kReduceScatter, from, size * static_cast<std::size_t>(at.size), type, how.kind,
             reduce_part(at, begin, begin + size, type, how, to));
  });
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("ncclAllGather", comm, stream, [=](Communicator& at) {
    const std::size_t size = count * size_of(type);
    exchange(at, kAllGather, from, size, type, 0, [&](std::size_t offset, std::size_t length, const auto& block) {
      for (int rank = 0; rank < at.size; ++rank)
        std::memcpy(static_cast<char*>(to) + size * static_cast<std::size_t>(rank) + offset, block(rank), length);
    });
  });
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("ncclBroadcast", comm, stream, [=](Communicator& at) {
    exchange(at, kBroadcast, at.rank == root ? from : nullptr, count * size_of(type), type,
             static_cast<std::uint64_t>(root), [&](std::size_t offset, std::size_t length, const auto& block) {
               std::memcpy(static_cast<char*>(to) + offset, block(root), length);
             });
  });
}

ncclResult_t ncclBcast(void* bytes, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(bytes, bytes, count, type, root, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return collective("ncclAlltoAll", comm, stream, [=](Communicator& at) {
    const std::size_t size = count * size_of(type), begin = size * static_cast<std::size_t>(at.rank),
                      end = begin + size;
    exchange(at, kAllToAll, from, size * static_cast<std::size_t>(at.size), type, 0,
             [&](std::size_t offset, std::size_t length, const auto& block) {
               const std::size_t first = std::max(offset, begin), last = std::min(offset + length, end);
               for (int rank = 0; rank < at.size && first < last; ++rank)
                 std::memcpy(static_cast<char*>(to) + size * static_cast<std::size_t>(rank) + (first - begin),
                             block(rank) + (first - offset), last - first);
             });
  });
}

ncclResult_t ncclSend(const void* bytes, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  char* const from = static_cast<char*>(const_cast<void*>(bytes));
  return submit("ncclSend", {comm->shared, stream, {}, true, peer, from, count * size_of(type)});
}

ncclResult_t ncclRecv(void* bytes, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return submit("ncclRecv", {comm->shared, stream, {}, false, peer, static_cast<char*>(bytes), count * size_of(type)});
}

// A factor on a device is read at once: nothing that is queued writes it later.
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* factor, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t) {
  const std::lock_guard lock(factors().mutex);
  auto& all = factors().all;
  auto place = std::find_if(all.begin(), all.end(), [](double value) { return value != value; });
  if (place == all.end()) place = all.insert(all.end(), 0);
  *place = number_at(factor, type);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + (place - all.begin()));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t) {
  const std::lock_guard lock(factors().mutex);
  factors().all.at(static_cast<std::size_t>(op - ncclNumOps)) = __builtin_nan("");
  return ncclSuccess;
}

}  // extern "C"
