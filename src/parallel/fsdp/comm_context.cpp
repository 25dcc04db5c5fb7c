#include "parallel/fsdp/comm_context.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "nn/ops/meta_run.h"
#include "parallel/fsdp/reduction.h"

namespace titan::fsdp {
namespace {

c10::Stream current_stream(const c10::Stream& like) {
  return c10::impl::VirtualGuardImpl(like.device_type()).getStream(like.device());
}

}  // namespace

SideStream::SideStream(at::Device device, bool high_priority) {
  if (device.is_meta()) meta_stream_ = meta_run::new_stream();
  if (device.is_cpu() || device.is_meta()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, high_priority);
}

void SideStream::run(const std::function<void()>& work) const {
  if (!stream_) {
    const meta_run::StreamScope allocates_there(meta_stream_);
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

void SideStream::host_waits_for(const StreamEvent& event) {
  if (event) event->synchronize();
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
  if (!all_gather_stream.exists()) retired_output_.reset();  // no stream, nothing to wait for
}

void CommContext::reduce(std::shared_ptr<Reduction> reduction) {
  if (reduce_scatter_stream.exists()) return reduce_on_streams(std::move(reduction));
  advance_reductions();
  reduction->start_reduce_scatter();
  scattering_ = std::move(reduction);
}

// The host does not wait: each stream does. Torch's order: the compute stream waits for the reduce-scatter before this
// one, because its input is memory of the compute stream.
void CommContext::reduce_on_streams(std::shared_ptr<Reduction> reduction) {
  advance_reductions();
  reduce_scatter_stream.waits_for_current();
  reduce_scatter_stream.run([&] {
    reduction->start_reduce_scatter();
    reduction->wait_reduce_scatter();
  });
  scattered_ = reduce_scatter_stream.record();
  all_reduce_stream.waits_for(scattered_);
  bool to_host = false;
  all_reduce_stream.run([&] {
    reduction->start_all_reduce();
    to_host = reduction->finish();
  });
  if (to_host) to_host_.push_back(all_reduce_stream.record());
  on_side_.push_back(reduction);
  scattering_ = std::move(reduction);
}

void CommContext::advance_reductions() {
  if (auto last = std::exchange(all_reducing_, nullptr)) last->finish();
  auto scattered = std::exchange(scattering_, nullptr);
  if (!scattered) return;
  if (reduce_scatter_stream.exists()) {
    reduce_scatter_stream.current_waits_for(scattered_);
    scattered->release_input();
    return;
  }
  scattered->wait_reduce_scatter();
  scattered->release_input();
  if (scattered->start_all_reduce()) {
    all_reducing_ = std::move(scattered);
  } else {
    scattered->finish();
  }
}

void CommContext::end_backward() {
  advance_reductions();
  advance_reductions();  // the all-reduce that the first one started
  reduce_scatter_stream.current_waits();
  all_reduce_stream.current_waits();
  for (const auto& event : std::exchange(to_host_, {})) SideStream::host_waits_for(event);
  on_side_.clear();
  all_gather_stream.waits_for(retired_when_);
  retired_output_.reset();
  retired_when_.reset();
  post_forward_order.clear();
}

}  // namespace titan::fsdp
