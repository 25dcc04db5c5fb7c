// Records what torch's operators, its autograd engine and a GPU do, through Kineto, the library behind torch.profiler.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "profile/trace_event.h"

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace titan::profile {

class Trace {
 public:
  explicit Trace(std::unique_ptr<torch::autograd::profiler::ProfilerResult> result);
  Trace(Trace&&) noexcept;
  ~Trace();

  // Returns the events in the order in which they were recorded.
  std::vector<TraceEvent> events() const;
  // Writes the Chrome trace format, which Perfetto and chrome://tracing open; call once. Creates the folder. Throws
  // Error naming the file if it cannot be written.
  void save(const std::filesystem::path& path);

 private:
  std::unique_ptr<torch::autograd::profiler::ProfilerResult> result_;
};

// One recording at a time per process. Call from one thread: records its operators and backward passes, including those
// on the autograd engine's threads. Background work of other threads is not recorded, except c10d collectives that this
// thread started. Nothing here is collective.
class Kineto {
 public:
  struct Rank {
    std::int64_t rank = 0, world_size = 1;
  };
  // With a CUDA `device`, also records its kernels and copies. `rank` is stored for tools that compare ranks.
  Kineto(c10::Device device, Rank rank) : device_(device), rank_(rank) {}

  // Prepares the profiler, so that start() costs little. Call some steps ahead.
  void prepare();
  void start();
  // Waits for the device, then ends the recording.
  Trace stop();

 private:
  c10::Device device_;
  Rank rank_;
};

}  // namespace titan::profile
