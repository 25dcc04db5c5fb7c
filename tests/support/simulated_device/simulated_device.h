// A simulated device: torch's device type PrivateUse1. Its memory is the host's, its kernels are the CPU's and run
// immediately, and its streams, events and caching allocator behave as CUDA's. Its results are right in any order; it
// reports where the program relied on an order that it had not asked for.
//
// One device per process. Its functions are thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/simulated_device/accesses.h"
#include "trace/operation.h"

namespace titan::sim {

// Registers the device with torch, and its accelerator with the engine. Later calls in a process do nothing.
void install();

// Returns the device. Its index is the local rank, as for a GPU.
c10::Device device();

// A wait of the host for the device.
struct Synchronization {
  std::string what;    // the operator that needs it, "a blocking copy to the host", "an event"
  std::string thread;  // "train", "autograd", or "background" (only that thread waits)
  std::string during;  // the phase of the program (base/process/phase.h)
  std::int64_t step = 0;
  std::string stack;  // stack of the program

  friend void PrintTo(const Synchronization& it, std::ostream* out) { *out << it.what << "\n" << it.stack; }
};

// Findings in the forwards, backwards and updates of one step of the program.
struct StepFindings {
  std::map<std::string, std::int64_t> kernels;  // operator -> how often it was queued
  std::int64_t peak_live_bytes = 0;
  std::map<MemoryUse, std::int64_t> most_by_use;  // peak of each use
};

// Findings since the last reset().
struct Findings {
  std::vector<std::string> races;  // each pair of operations once
  std::vector<Synchronization> synchronizations;
  std::int64_t live_bytes = 0, peak_live_bytes = 0, peak_reserved_bytes = 0;
  std::int64_t num_pinned_allocations = 0;     // of page-locked host memory
  std::map<std::int64_t, StepFindings> steps;  // 0: outside of the program's steps
  // Values that NCCL reads when the first communicator is made: whether torch is deterministic, and the variables for
  // how long c10d waits for its records to be written and for which algorithms NCCL may choose.
  bool deterministic_when_connected = false;
  std::string dump_patience, algorithms;
};
Findings findings();
// Clears the findings. Memory and streams stay unchanged; the peaks start at what is live now.
void reset();

}  // namespace titan::sim
