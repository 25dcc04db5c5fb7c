#include "distributed/host_staged_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

namespace titan::dist {
namespace {

// Returns a host tensor for the host's collective to use instead of `tensor`.
at::Tensor host_like(const at::Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)); }

// Copies to the host. Blocks, also for earlier work on the current stream.
at::Tensor to_host(const at::Tensor& tensor) { return host_like(tensor).copy_(tensor); }

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
