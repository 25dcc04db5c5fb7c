#include "parallel/fsdp/comm_context.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/graph_task.h>

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

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

void CommContext::init(at::Device device) {
  all_gather_stream = SideStream(device, true);
  reduce_scatter_stream = SideStream(device, true);
  all_reduce_stream = SideStream(device, false);
}

void CommContext::retire(std::vector<at::Tensor> buffers) {
  if (!all_gather_stream.exists()) return;  // nothing to wait for
  retired_ = std::move(buffers);
  retired_when_ = all_gather_stream.record_current();
}

void CommContext::release(std::vector<at::Tensor> buffers) {
  all_gather_stream.waits_for_current();
  buffers.clear();
}

void CommContext::release_retired() {
  all_gather_stream.waits_for(std::exchange(retired_when_, nullptr));
  retired_.clear();
}

void CommContext::reduce(const std::function<std::shared_ptr<Reduction>()>& make) {
  if (reduce_scatter_stream.exists()) {
    // Torch's order: the compute stream waits for the previous reduce-scatter, whose input is its memory, and only
    // then copies in the next input.
    advance_reductions();
    auto reduction = make();
    return reduction->is_local() ? reduce_here(reduction) : reduce_on_streams(std::move(reduction));
  }
  auto reduction = make();
  advance_reductions();
  reduction->start_reduce_scatter();
  scattering_ = std::move(reduction);
}

// Runs on the current stream. Nothing is exchanged, and the gradients are its memory: another stream would free them
// too early.
void CommContext::reduce_here(const std::shared_ptr<Reduction>& reduction) {
  if (reduction->finish()) to_host_.push_back(reduce_scatter_stream.record_current());
}

// The host does not wait: each stream does.
void CommContext::reduce_on_streams(std::shared_ptr<Reduction> reduction) {
  reduce_scatter_stream.waits_for_current();
  bool to_host = false;
  reduce_scatter_stream.run([&] {
    reduction->start_reduce_scatter();
    reduction->wait_reduce_scatter();
    reduction->add_partial();
    if (!reduction->all_reduces()) to_host = reduction->finish();
  });
  scattered_ = reduce_scatter_stream.record();
  if (to_host) to_host_.push_back(scattered_);
  if (reduction->all_reduces()) all_reduce_on_stream(reduction);
  scattering_ = std::move(reduction);
}

// At most two all-reduces use buffers of the reduce-scatter stream; the oldest buffer may be reused after its event.
// Memory of the compute stream is kept until end_backward(), so that no stream need wait for it.
void CommContext::all_reduce_on_stream(std::shared_ptr<Reduction> reduction) {
  if (all_reduced_.size() >= 2 && !reduction->scatters_in_place()) {
    reduce_scatter_stream.waits_for(all_reduced_.front().end);
    all_reduced_.pop_front();
  }
  all_reduce_stream.waits_for(scattered_);
  bool to_host = false;
  all_reduce_stream.run([&] {
    reduction->start_all_reduce();
    to_host = reduction->finish();
  });
  const auto end = all_reduce_stream.record();
  if (to_host) to_host_.push_back(end);
  all_reduced_.push_back({std::move(reduction), end});
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
  scattered->add_partial();
  if (scattered->all_reduces()) {
    scattered->start_all_reduce();
    all_reducing_ = std::move(scattered);
  } else {
    scattered->finish();
  }
}

void CommContext::end_backward() {
  advance_reductions();
  advance_reductions();  // finishes the all-reduce that the first call started
  reduce_scatter_stream.current_waits();
  all_reduce_stream.current_waits();
  for (const auto& event : std::exchange(to_host_, {})) SideStream::host_waits_for(event);
  all_reduced_.clear();
  release_retired();
  post_forward_order.clear();
}

}  // namespace titan::fsdp
