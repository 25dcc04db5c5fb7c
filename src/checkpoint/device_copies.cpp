#include "checkpoint/device_copies.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace titan::checkpoint {

void DeviceCopies::begin(at::Device device) {
  end_.reset();
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!stream_) stream_ = guard.getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  c10::Event event(device.type());
  event.record(guard.getStream(device));
  event.block(*stream_);
}

void DeviceCopies::copy(const at::Tensor& to, const at::Tensor& from) const {
  if (!stream_) {
    to.copy_(from);
    return;
  }
  const c10::StreamGuard guard(*stream_);
  to.copy_(from, /*non_blocking=*/true);
}

void DeviceCopies::end() {
  if (!stream_) return;
  end_.emplace(stream_->device_type());
  end_->record(*stream_);
}

void DeviceCopies::host_waits() const {
  if (end_) end_->synchronize();
}

void DeviceCopies::current_stream_waits() const {
  if (end_) end_->block(c10::impl::VirtualGuardImpl(stream_->device_type()).getStream(stream_->device()));
}

}  // namespace titan::checkpoint
