// Copies of a device's tensors to the host that run beside what the device computes: on a stream of their own, which waits
// for what was queued before them. For tensors of the host each call but copy() does nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

namespace titan::checkpoint {

class DeviceCopies {
 public:
  // On the thread that computes: what it has queued on `device` comes before the copies.
  void begin(at::Device device);

  // On one thread, any: `to` is page-locked where `from` is on the device. Both must live until host_waits() returns.
  void copy(const at::Tensor& to, const at::Tensor& from) const;
  void end();
  void host_waits() const;

  // On the thread that computes, after end(): what it queues from here on, which may change what is copied, comes after.
  void current_stream_waits() const;

 private:
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> end_;
};

}  // namespace titan::checkpoint
