#pragma once

// Communicators. Each call of NCCL takes a number, and is carried out in the order of the numbers by the thread of its
// stream, so that the host goes on meanwhile.

#include <nccl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/null_cuda/nccl/nccl_segment.h"
#include "tests/support/null_cuda/settings.h"

namespace titan_null {

struct Communicator {
  Communicator(const std::string& its_name, int its_rank, int num_ranks, int on_device)
      : name(its_name),
        rank(its_rank),
        size(num_ranks),
        device(on_device),
        segment(its_name, its_rank, num_ranks, 1000 * settings().machine + on_device) {}

  bool goes_on() const { return !is_aborted && error == ncclSuccess; }
  // Returns when the communicator is aborted: what a call does that never completes.
  void wait_for_abort() const;

  const std::string name;
  const int rank, size, device;
  Segment segment;
  std::atomic<bool> is_aborted = false;
  std::atomic<ncclResult_t> error = ncclSuccess;
  std::uint64_t num_submitted = 0;
  std::atomic<std::uint64_t> num_done = 0;
  int num_splits = 0;
};

using Shared = std::shared_ptr<Communicator>;

// A call that is not yet carried out.
struct Call {
  Shared comm;
  cudaStream_t stream;
  std::function<void(Communicator&)> work;
  // A call between two ranks has these instead: those of one group go on side by side.
  bool is_send = false;
  int peer = -1;
  char* bytes = nullptr;
  std::size_t size = 0;
};

// Carries a call out, or keeps it until the group ends. Counts it by its name, and lets it fail if a rule says so.
ncclResult_t submit(const char* name, Call call);

void start_group();
ncclResult_t end_group();

// Waits for the calls before this one and runs `work` in the calling thread.
void run_in_turn(Communicator& comm, const std::function<void()>& work);

// Keeps the text that ncclGetLastError() returns, and returns the error.
ncclResult_t fail(ncclResult_t error, const std::string& reason);
const char* last_reason();

}  // namespace titan_null

struct ncclComm {
  titan_null::Shared shared;
};
