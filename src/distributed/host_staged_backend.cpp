#include "distributed/host_staged_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>
#include <vector>

namespace titan::dist {
namespace {

// Returns a host tensor for the host's collective to use instead of `tensor`.
at::Tensor host_like(const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)); }

// Copies to the host. Blocks, also for earlier work on the current stream.
at::Tensor to_host(const at::Tensor& tensor) { return host_like(tensor).copy_(tensor); }

// A message on its way into a tensor of the device. wait() copies it there.
class StagedReceive final : public c10d::Work {
 public:
  StagedReceive(c10::intrusive_ptr<c10d::Work> work, at::Tensor host, at::Tensor output)
      : work_(std::move(work)), host_(std::move(host)), output_(std::move(output)) {
    if (!output_.is_cpu()) is_free_.emplace(output_.device().type()).record(current_stream());
  }

  bool isCompleted() override { return !work_; }
  bool isSuccess() const override { return !work_; }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!work_) return true;
    const at::NoGradGuard no_grad;
    work_->wait(timeout);
    if (is_free_) is_free_->block(current_stream());
    output_.copy_(host_);
    work_.reset();
    host_.reset();
    output_.reset();
    return true;
  }

 private:
  c10::Stream current_stream() const {
    return c10::impl::VirtualGuardImpl(output_.device().type()).getStream(output_.device());
  }

  c10::intrusive_ptr<c10d::Work> work_;  // null when it is over
  at::Tensor host_, output_;
  // The output is free for writing: what used it before the start may be on another stream than the waiting one.
  std::optional<c10::Event> is_free_;
};

class HostStagedBackend final : public c10d::Backend {
 public:
  explicit HostStagedBackend(c10::intrusive_ptr<c10d::Backend> host)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}

  const std::string getBackendName() const override { return "host-staged " + host_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    const at::NoGradGuard no_grad;
    auto host_input = to_host(input);
    auto host_output = host_like(output);
    return into(output, host_output, host_->_allgather_base(host_output, host_input, options));
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    const at::NoGradGuard no_grad;
    auto host_input = to_host(input);
    auto host_output = host_like(output);
    return into(output, host_output, host_->_reduce_scatter_base(host_output, host_input, options));
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> on_host = {to_host(tensors.at(0))};
    return into(tensors[0], on_host[0], host_->allreduce(on_host, options));
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> on_host = {to_host(tensors.at(0))};
    return into(tensors[0], on_host[0], host_->broadcast(on_host, options));
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> on_host = {to_host(tensors.at(0))};
    return host_->send(on_host, to, tag);
  }

  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    std::vector<at::Tensor> on_host = {host_like(tensors.at(0))};
    auto work = host_->recv(on_host, from, tag);
    return c10::make_intrusive<StagedReceive>(std::move(work), on_host[0], tensors[0]);
  }

 private:
  static c10::intrusive_ptr<c10d::Work> into(at::Tensor& output, const at::Tensor& host_output,
                                             c10::intrusive_ptr<c10d::Work> work) {
    work->wait();
    output.copy_(host_output);
    return work;  // complete: waiting again returns at once
  }

  c10::intrusive_ptr<c10d::Backend> host_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_host_staged_backend(c10::intrusive_ptr<c10d::Backend> host) {
  return c10::make_intrusive<HostStagedBackend>(std::move(host));
}

}  // namespace titan::dist
