#include "parallel/fsdp/comm_context.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace titan::fsdp {
namespace {

c10::Stream current_stream(const c10::Stream& like) {
  return c10::impl::VirtualGuardImpl(like.device_type()).getStream(like.device());
}

}  // namespace

SideStream::SideStream(at::Device device, bool high_priority) {
  if (device.is_cpu() || device.is_meta()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, high_priority);
}

void SideStream::run(const std::function<void()>& work) const {
  if (!stream_) {
    work();
    return;
  }
  const c10::StreamGuard guard(*stream_);
  work();
}

StreamEvent SideStream::record_current() const {
  if (!stream_) return nullptr;
  auto event = std::make_shared<c10::Event>(stream_->device_type());
  event->record(current_stream(*stream_));
  return event;
}

void SideStream::waits_for(const StreamEvent& event) const {
  if (stream_ && event) event->block(*stream_);
}

void SideStream::waits_for_current() const { waits_for(record_current()); }

StreamEvent SideStream::record() const {
  if (!stream_) return nullptr;
  auto event = std::make_shared<c10::Event>(stream_->device_type());
  event->record(*stream_);
  return event;
}

void SideStream::current_waits_for(const StreamEvent& event) const {
  if (stream_ && event) event->block(current_stream(*stream_));
}

void SideStream::current_waits() const { current_waits_for(record()); }

void CommContext::init(at::Device device) {
  all_gather_stream = SideStream(device, true);
  reduce_scatter_stream = SideStream(device, true);
  all_reduce_stream = SideStream(device, false);
}

void CommContext::retire(at::Tensor all_gather_output) {
  all_gather_stream.waits_for(retired_when_);
  retired_output_ = std::move(all_gather_output);
  retired_when_ = all_gather_stream.record_current();
  if (!retired_when_) retired_output_.reset();  // no stream, nothing to wait for
}

void CommContext::end_backward() {
  complete_reduction();
  reduce_scatter_stream.current_waits();
  all_reduce_stream.current_waits();
  kept_.clear();
  all_gather_stream.waits_for(retired_when_);
  retired_output_.reset();
  retired_when_.reset();
  post_forward_order.clear();
}

void CommContext::complete_reduction() {
  if (const auto complete = std::exchange(pending_reduction, std::nullopt)) (*complete)();
}

}  // namespace titan::fsdp
