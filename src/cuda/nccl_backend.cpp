#include "cuda/nccl_backend.h"

#include <c10/cuda/CUDAFunctions.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/error.h"
#include "base/process/program_name.h"
#include "distributed/accelerator/device_error.h"
#include "distributed/accelerator/device_queue.h"
#include "distributed/world.h"

namespace titan::cuda {
namespace {

// Aborts its communicators on destruction: after success nothing is in flight, after a failure waiting would hang.
class NcclBackend final : public c10d::ProcessGroupNCCL, public dist::DeviceQueue {
 public:
  using ProcessGroupNCCL::ProcessGroupNCCL;
  ~NcclBackend() override {
    try {
      abort();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: NCCL does not end cleanly: %s\n", program_name(), error.what());
    }
  }

  // The watchdog keeps the number of the last collective that it has seen finished.
  std::int64_t num_unfinished() override {
    const auto started = static_cast<std::int64_t>(getSequenceNumberForGroup());
    return started - std::max<std::int64_t>(pgStatus_->lastCompletedSeq, 0);
  }
};

// Returns a note on where c10d wrote its record of NCCL, in files whose names end in the rank; empty if none is set.
std::string dump_of_c10d() {
  const char* start = std::getenv("TORCH_FR_DUMP_TEMP_FILE");
  if (!start) start = std::getenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  return start ? "; c10d's own record, for torchfrtrace, is in " + std::string(start) + "RANK" : "";
}

std::terminate_handler previous_handler = nullptr;

// Ends the process for an error of this rank's device. NCCL's watchdog sees it within 0.1 s, often before the training
// thread. If that thread is first, the error is on its way to the code that reports it, and every tensor in page-locked
// memory that is freed meanwhile hits it again, in a destructor: the process would end by SIGABRT.
[[noreturn]] void end_this_rank(const std::string& reason) {
  const std::string told = "the device failed: " + reason;
  dist::fail_this_rank(told);
  std::fprintf(stderr, "%s: %s\n", program_name(), told.c_str());
  std::fflush(nullptr);
  _exit(kExitFailed);
}

[[noreturn]] void end_for_peers(const std::string& reason) {
  dist::stop_this_rank("NCCL: a peer rank ended or did not answer in time (" + reason + ")" + dump_of_c10d());
  std::fprintf(stderr, "%s: NCCL: a peer rank ended or did not answer in time: %s\n", program_name(), reason.c_str());
  std::fflush(nullptr);
  _exit(kExitPeerFailed);
}

void end_with_reason() {
  if (const auto failure = std::current_exception()) {
    try {
      std::rethrow_exception(failure);
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      if (dist::is_device_error(text)) end_this_rank(dist::reason_in(text));
      if (dynamic_cast<const c10::DistError*>(&error)) end_for_peers(dist::reason_in(text));
    } catch (...) {
      // Neither NCCL's nor the device's: handled below.
    }
  }
  previous_handler();
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                    std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = timeout;
  auto backend = c10::make_intrusive<NcclBackend>(std::move(store), rank, size, std::move(options));
  // Connects now, not at the first collective: a host whose NCCL cannot connect fails before the model is built.
  backend->eagerConnectSingleDevice(c10::Device(c10::DeviceType::CUDA, c10::cuda::current_device()));
  return backend;
}

void end_on_nccl_failure() {
  const auto handler = std::set_terminate(end_with_reason);
  if (handler != end_with_reason) previous_handler = handler;
}

}  // namespace titan::cuda
