#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/process_group_gloo.h"
#include "tests/support/simulated_device/parts.h"

namespace titan::sim {
namespace {

// Like ProcessGroupNCCL's work: keeps the tensors of the collective alive until wait() is called.
class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(Clock end, std::vector<at::Tensor> held) : end_(std::move(end)), held_(std::move(held)) {}

  bool isCompleted() override { return false; }
  bool wait(std::chrono::milliseconds) override {
    State::get().stream_waits(current_stream(), end_);
    held_.clear();
    return true;
  }

 private:
  Clock end_;
  std::vector<at::Tensor> held_;
};

class DeviceBackend final : public c10d::Backend {
 public:
  DeviceBackend(c10::intrusive_ptr<c10d::Backend> host, const std::string& name)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)), stream_(State::get().new_stream(name)) {}

  const std::string getBackendName() const override { return "simulated"; }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    return run("all_gather", {input}, {output}, [&] {
      auto to = on_host(output).view(-1), from = on_host(input).view(-1);  // Gloo checks shapes, NCCL does not
      return host_->_allgather_base(to, from, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    return run("reduce_scatter", {input}, {output}, [&] {
      auto to = on_host(output).view(-1), from = on_host(input).view(-1);  // Gloo checks shapes, NCCL does not
      return host_->_reduce_scatter_base(to, from, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return run("all_reduce", tensors, tensors, [&] {
      std::vector<at::Tensor> both = {on_host(tensors.at(0))};
      return host_->allreduce(both, options);
    });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return run("broadcast", tensors, tensors, [&] {
      std::vector<at::Tensor> both = {on_host(tensors.at(0))};
      return host_->broadcast(both, options);
    });
  }

 private:
  template <typename Start>
  c10::intrusive_ptr<c10d::Work> run(const std::string& name, const std::vector<at::Tensor>& inputs,
                                     const std::vector<at::Tensor>& outputs, Start start) {
    auto& state = State::get();
    state.stream_waits(stream_, state.record(current_stream()));
    std::vector<Use> uses;
    std::vector<at::Tensor> held;
    for (const auto& input : inputs) uses.push_back({bytes_of(input), false, "input"});
    for (const auto& output : outputs) uses.push_back({bytes_of(output), true, "output"});
    state.queue(stream_, name, uses);
    held.insert(held.end(), inputs.begin(), inputs.end());
    held.insert(held.end(), outputs.begin(), outputs.end());
    start()->wait();
    return c10::make_intrusive<DeviceWork>(state.record(stream_), std::move(held));
  }

  c10::intrusive_ptr<c10d::Backend> host_;
  StreamId stream_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                               std::chrono::milliseconds timeout) {
  static int count = 0;
  if (count == 0) State::get().note_connection();
  auto gloo = dist::make_gloo_backend(store, rank, size, timeout, /*local_only=*/true);
  return c10::make_intrusive<DeviceBackend>(std::move(gloo), "of communicator " + std::to_string(++count));
}

}  // namespace titan::sim
