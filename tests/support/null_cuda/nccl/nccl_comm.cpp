#include "tests/support/null_cuda/nccl/nccl_comm.h"

#include <map>
#include <mutex>

#include "tests/support/null_cuda/errors.h"
#include "tests/support/null_cuda/settings.h"
#include "tests/support/null_cuda/streams.h"
#include "tests/support/null_cuda/trace.h"

namespace titan_null {
namespace {

thread_local int group_depth = 0;
thread_local std::vector<Call> group;

std::atomic<long> num_calls = 0;

struct Reason {
  std::mutex mutex;
  std::string text;
};

Reason& reason() {
  static auto& kept = *new Reason;
  return kept;
}

// Gives `work` its turn among the calls of the communicator.
void take_turn(Communicator& comm, std::uint64_t number, const std::function<void()>& work) {
  for (int turn = 0; comm.num_done < number && comm.goes_on(); ++turn) pause_a_little(turn);
  if (comm.goes_on()) work();
  // A call that failed never completes by itself: the host finds the error, and aborts.
  if (!comm.goes_on()) comm.wait_for_abort();
  ++comm.num_done;
}

void carry_out(const Shared& comm, cudaStream_t stream, std::function<void(Communicator&)> work) {
  const std::uint64_t number = comm->num_submitted++;
  stream_of(stream).run_beside([=, work = std::move(work)] { take_turn(*comm, number, [&] { work(*comm); }); });
}

// Moves what all sends and receives of a group have, as far as it goes, in rounds.
void exchange_pairs(Communicator& comm, std::vector<Call> calls) {
  std::map<std::pair<bool, int>, std::vector<Call*>> order;  // the calls of a pair go one after the other
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) order[{call->is_send, call->peer}].push_back(&*call);
  for (int turn = 0; !order.empty() && comm.goes_on(); ++turn) {
    std::size_t moved = 0;
    for (auto& [key, waiting] : order) {
      Call& call = *waiting.back();
      const std::size_t length = call.is_send ? comm.segment.put(call.peer, call.bytes, call.size)
                                              : comm.segment.get(call.peer, call.bytes, call.size);
      call.bytes += length;
      call.size -= length;
      moved += length;
      if (call.size == 0) waiting.pop_back();
    }
    moved += std::erase_if(order, [](const auto& entry) { return entry.second.empty(); });
    if (moved > 0)
      turn = 0;
    else
      pause_a_little(turn);
  }
}

// Carries the kept calls out: collectives in their order, sends and receives of a communicator together.
void carry_out_all(std::vector<Call> calls) {
  std::map<Shared, std::vector<Call>> pairs;
  for (Call& call : calls) {
    if (call.peer < 0)
      carry_out(call.comm, call.stream, std::move(call.work));
    else
      pairs[call.comm].push_back(call);
  }
  for (auto& [comm, mine] : pairs)
    carry_out(comm, mine[0].stream, [mine](Communicator& at) { exchange_pairs(at, mine); });
}

}  // namespace

void Communicator::wait_for_abort() const {
  for (int turn = 0; !is_aborted; ++turn) pause_a_little(turn);
}

ncclResult_t submit(const char* name, Call call) {
  count_call(name);
  if (device_error() != cudaSuccess) return fail(ncclUnhandledCudaError, cudaGetErrorString(device_error()));
  const long number = ++num_calls;
  if (is_faulty("hang", number)) {
    call.peer = -1;
    call.work = [](Communicator& comm) { comm.wait_for_abort(); };
  }
  if (is_faulty("remote_error", number)) {
    call.peer = -1;
    call.work = [](Communicator& comm) {
      comm.error = fail(ncclRemoteError, "null NCCL: a rule says that the peer is gone");
    };
  }
  if (group_depth > 0)
    group.push_back(std::move(call));
  else
    carry_out_all({std::move(call)});
  return ncclSuccess;
}

void start_group() { ++group_depth; }

ncclResult_t end_group() {
  if (group_depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  carry_out_all(std::move(group));
  group.clear();
  return ncclSuccess;
}

void run_in_turn(Communicator& comm, const std::function<void()>& work) { take_turn(comm, comm.num_submitted++, work); }

ncclResult_t fail(ncclResult_t error, const std::string& text) {
  const std::lock_guard lock(reason().mutex);
  reason().text = text;
  return error;
}

// The text stays until the next failure of the process.
const char* last_reason() {
  static thread_local std::string copied;
  const std::lock_guard lock(reason().mutex);
  copied = reason().text;
  return copied.c_str();
}

}  // namespace titan_null
