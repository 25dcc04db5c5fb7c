#include <ATen/ATen.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
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

// Moves the bytes of messages as NCCL does on its stream: one operation after the other, each until its peers come to
// it, while the host goes on. So what would make devices wait forever fails here too, when Gloo's time is over.
class MessageThread {
 public:
  // One operation: messages that were started together.
  struct Batch {
    std::vector<std::function<c10::intrusive_ptr<c10d::Work>()>> starts;
    std::promise<void> over;
  };

  MessageThread() : thread_([this] { run(); }) {}
  // Waits for all batches.
  ~MessageThread() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  std::shared_future<void> add(Batch batch) {
    const std::lock_guard lock(mutex_);
    last_ = batch.over.get_future().share();
    batches_.push_back(std::move(batch));
    changed_.notify_one();
    return last_;
  }

  // Waits for all batches that were added.
  void wait() {
    if (last_.valid()) last_.get();
  }

 private:
  void run() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return is_ending_ || !batches_.empty(); });
      if (batches_.empty()) return;
      auto batch = std::move(batches_.front());
      batches_.pop_front();
      lock.unlock();
      try {
        std::vector<c10::intrusive_ptr<c10d::Work>> works;
        for (const auto& start : batch.starts) works.push_back(start());
        for (const auto& work : works) work->wait();
        batch.over.set_value();
      } catch (...) {
        batch.over.set_exception(std::current_exception());
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  bool is_ending_ = false;
  std::shared_future<void> last_;
  std::thread thread_;  // last: it uses all others
};

// The work of messages. The host waits for their bytes in wait(), which is not a wait for the device.
class MessageWork final : public c10d::Work {
 public:
  // Received bytes and the device's memory for them.
  using Received = std::vector<std::pair<at::Tensor, at::Tensor>>;

  MessageWork(c10::intrusive_ptr<c10d::Work> work, std::shared_future<void> over, Received received)
      : work_(std::move(work)), over_(std::move(over)), received_(std::move(received)) {}

  bool isCompleted() override { return false; }
  bool wait(std::chrono::milliseconds timeout) override {
    over_.get();
    for (auto& [bytes, memory] : received_) memory.copy_(bytes);
    received_.clear();
    return work_->wait(timeout);
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_future<void> over_;
  Received received_;
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

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { batch_.emplace(); }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    const bool is_alone = !batch_;
    if (is_alone) startCoalescing();
    auto bytes = on_host(tensors.at(0)).clone();  // at once, as in run(): what comes later must not show
    batch_->sent.push_back(tensors[0]);
    batch_->messages.starts.push_back([this, bytes, to, tag]() mutable {
      std::vector<at::Tensor> one = {bytes};
      return host_->send(one, to, tag);
    });
    return is_alone ? endCoalescing() : nullptr;
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    const bool is_alone = !batch_;
    if (is_alone) startCoalescing();
    const auto memory = on_host(tensors.at(0));
    const auto bytes = at::empty_like(memory);
    batch_->outputs.push_back(tensors[0]);
    batch_->received.emplace_back(bytes, memory);
    batch_->messages.starts.push_back([this, bytes, from, tag]() mutable {
      std::vector<at::Tensor> one = {bytes};
      return host_->recv(one, from, tag);
    });
    return is_alone ? endCoalescing() : nullptr;
  }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    auto batch = *std::exchange(batch_, std::nullopt);
    auto work = queue("messages", batch.sent, batch.outputs);
    auto over = messages_.add(std::move(batch.messages));
    return c10::make_intrusive<MessageWork>(std::move(work), std::move(over), std::move(batch.received));
  }

 private:
  struct Batch {
    MessageThread::Batch messages;
    std::vector<at::Tensor> sent, outputs;
    MessageWork::Received received;
  };

  template <typename Start>
  c10::intrusive_ptr<c10d::Work> run(const std::string& name, const std::vector<at::Tensor>& inputs,
                                     const std::vector<at::Tensor>& outputs, Start start) {
    auto work = queue(name, inputs, outputs);
    messages_.wait();
    start()->wait();
    return work;
  }

  // Records the operation on the communicator's stream, after what is queued on the current one.
  c10::intrusive_ptr<DeviceWork> queue(const std::string& name, const std::vector<at::Tensor>& inputs,
                                       const std::vector<at::Tensor>& outputs) {
    auto& state = State::get();
    state.stream_waits(stream_, state.record(current_stream()));
    std::vector<Use> uses;
    std::vector<at::Tensor> held;
    for (const auto& input : inputs) uses.push_back({bytes_of(input), false, "input"});
    for (const auto& output : outputs) uses.push_back({bytes_of(output), true, "output"});
    state.queue(stream_, name, uses);
    held.insert(held.end(), inputs.begin(), inputs.end());
    held.insert(held.end(), outputs.begin(), outputs.end());
    return c10::make_intrusive<DeviceWork>(state.record(stream_), std::move(held));
  }

  c10::intrusive_ptr<c10d::Backend> host_;
  StreamId stream_;
  std::optional<Batch> batch_;  // between startCoalescing() and endCoalescing()
  MessageThread messages_;      // ends before `host_`
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
