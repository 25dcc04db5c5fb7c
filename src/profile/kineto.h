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

  // In the order in which they were recorded.
  std::vector<TraceEvent> events() const;
  // In the Chrome trace format, which Perfetto and chrome://tracing open; once. Makes the folder. Throws Error naming
  // the file where it cannot be written.
  void save(const std::filesystem::path& path);

 private:
  std::unique_ptr<torch::autograd::profiler::ProfilerResult> result_;
};

// One recording at a time in a process. From one thread, whose operators and backward passes it records, those of the
// autograd engine's threads included; what other threads of the program do in the background is not in it, but for
// c10d's collectives that this one started. Nothing here is collective.
class Kineto {
 public:
  struct Rank {
    std::int64_t rank = 0, world_size = 1;
  };
  // With a CUDA `device` also of what it computes and copies. `rank` is written down for tools that compare ranks.
  Kineto(c10::Device device, Rank rank) : device_(device), rank_(rank) {}

  // Makes ready, so that start() costs little: some steps ahead.
  void prepare();
  void start();
  // Waits for the device.
  Trace stop();

 private:
  c10::Device device_;
  Rank rank_;
};

}  // namespace titan::profile
