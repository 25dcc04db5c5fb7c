// Copies device tensors to the host while the device computes: on a separate stream, which waits for the work queued
// before. For host tensors every call except copy() does nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

namespace titan::checkpoint {

class DeviceCopies {
 public:
  // Call on the computing thread: the copies wait for what it has queued on `device`.
  void begin(at::Device device);

  // Call the next three on one thread (any). `to` is page-locked if `from` is on the device. Both must live until
  // host_waits() returns.
  void copy(const at::Tensor& to, const at::Tensor& from) const;
  void end();
  void host_waits() const;

  // Call on the computing thread, after end(): work that it queues from now on waits for the copies, and may change
  // `from`.
  void current_stream_waits() const;

 private:
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> end_;
};

}  // namespace titan::checkpoint
