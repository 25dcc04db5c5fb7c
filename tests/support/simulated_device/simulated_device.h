// A device that is not there: torch's device type PrivateUse1, whose memory is the host's, whose kernels are those of the
// CPU and run at once, and whose streams, events and caching allocator are CUDA's. What it computes is right in any order;
// what it reports is where the program relied on an order that nobody had asked for.
//
// One device in a process. Its functions are thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "nn/ops/meta_run.h"
#include "tests/support/simulated_device/accesses.h"

namespace titan::sim {

// Makes torch know the device, and the engine its accelerator. Once in a process; later calls do nothing.
void install();

// Its index is the local rank, as that of a GPU would be.
c10::Device device();

// The host stood still until the device had done something.
struct Synchronization {
  std::string what;    // the operator that needs it, "a blocking copy to the host", "an event"
  std::string thread;  // "train", "autograd", or "background", where nobody but that thread waits
  std::string during;  // the phase of the program (base/process/phase.h)
  std::int64_t step = 0;
  std::string stack;  // where in the program

  friend void PrintTo(const Synchronization& it, std::ostream* out) { *out << it.what << "\n" << it.stack; }
};

// Of the forwards, backwards and updates of one step of the program.
struct StepFindings {
  std::map<std::string, std::int64_t> kernels;  // operator -> how often it was queued
  std::int64_t peak_live_bytes = 0;
  std::map<meta_run::Use, std::int64_t> most_by_use;  // each at its own moment
};

// What happened since the last reset().
struct Findings {
  std::vector<std::string> races;  // each told once per pair of operations
  std::vector<Synchronization> synchronizations;
  std::int64_t live_bytes = 0, peak_live_bytes = 0, peak_reserved_bytes = 0;
  std::map<std::int64_t, StepFindings> steps;  // 0: outside of the program's steps
  // Both hold what NCCL read when the first communicator was made: whether torch was deterministic, and the variable by
  // which c10d waits for its records to be written.
  bool deterministic_when_connected = false;
  std::string dump_patience;
};
Findings findings();
// Memory and streams stay as they are; the peaks begin at what is live now.
void reset();

}  // namespace titan::sim
