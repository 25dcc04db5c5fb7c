#include "distributed/shared_memory/shared_memory_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/limits/system_limits.h"
#include "distributed/shared_memory/ring_sum.h"
#include "distributed/shared_memory/shared_channel.h"
#include "kernels/memory/stream_copy.h"

namespace titan::dist {
namespace {

// In an all-reduce every rank reads the full inputs of all others. With more ranks than this, Gloo's ring is cheaper
// for inputs of this size and above: it reads two inputs' worth at any number of ranks.
constexpr int kMostRanksOfAnyInput = 8;
constexpr std::size_t kLargeInput = std::size_t{1} << 18;

bool can_reduce(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kFloat || dtype == at::kDouble ||
         dtype == at::kInt || dtype == at::kLong;
}

std::optional<SharedKind> kind_of(const c10d::ReduceOp& op) {
  if (op == c10d::ReduceOp::SUM) return SharedKind::kSum;
  if (op == c10d::ReduceOp::MAX) return SharedKind::kMax;
  if (op == c10d::ReduceOp::MIN) return SharedKind::kMin;
  return std::nullopt;
}

void pick_out(const at::Tensor& output, const std::vector<at::Tensor>& inputs, SharedKind kind) {
  const auto pick = kind == SharedKind::kMax ? &at::maximum_out : &at::minimum_out;
  auto result = output;
  pick(result, inputs[0], inputs[1]);
  for (std::size_t r = 2; r < inputs.size(); ++r) pick(result, result, inputs[r]);
}

class SharedWork final : public c10d::Work {
 public:
  using Finish = std::function<void(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& result)>;

  // Without `finish`, the result is the inputs of all ranks. With `root`, only its input is read.
  SharedWork(std::shared_ptr<SharedOperation> operation, std::chrono::milliseconds timeout, Finish finish,
             std::optional<int> root)
      : operation_(std::move(operation)), timeout_(timeout), finish_(std::move(finish)), root_(root) {}

  bool isCompleted() override { return !operation_; }
  bool isSuccess() const override { return !operation_; }
  std::vector<at::Tensor> result() override { return result_; }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!operation_) return true;
    const at::NoGradGuard no_grad;
    if (timeout == kNoTimeout) timeout = timeout_;
    auto inputs = root_ ? std::vector{operation_->input(*root_, timeout)} : operation_->inputs(timeout);
    if (finish_) {
      finish_(inputs, result_);
    } else {
      result_ = std::move(inputs);
    }
    operation_.reset();
    finish_ = nullptr;
    return true;
  }

 private:
  std::shared_ptr<SharedOperation> operation_;  // null when it is over
  std::chrono::milliseconds timeout_;
  Finish finish_;
  std::optional<int> root_;
  std::vector<at::Tensor> result_;
};

class GatherWork final : public c10d::Work {
 public:
  using Write = std::function<void(const at::Tensor& output)>;

  GatherWork(std::shared_ptr<SharedGather> gather, at::Tensor output, std::chrono::milliseconds timeout, Write write)
      : gather_(std::move(gather)), output_(std::move(output)), timeout_(timeout), write_(std::move(write)) {
    if (gather_->is_free()) write_part();
  }

  bool isCompleted() override { return !gather_; }
  bool isSuccess() const override { return !gather_; }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!gather_) return true;
    if (timeout == kNoTimeout) timeout = timeout_;
    if (write_) {
      gather_->wait_until_free(timeout);
      write_part();
    }
    gather_->wait_until_whole(timeout);
    gather_.reset();
    output_.reset();
    return true;
  }

 private:
  void write_part() {
    const at::NoGradGuard no_grad;
    std::exchange(write_, nullptr)(output_);
    gather_->set_written();
  }

  std::shared_ptr<SharedGather> gather_;  // null when it is over
  at::Tensor output_;
  std::chrono::milliseconds timeout_;
  Write write_;  // empty when this rank has written
};

// A receive, or a send, which is over when it has started: then `wait` is empty.
class MailWork final : public c10d::Work {
 public:
  MailWork(SharedMail::Wait wait, std::chrono::milliseconds timeout) : wait_(std::move(wait)), timeout_(timeout) {}

  bool isCompleted() override { return !wait_; }
  bool isSuccess() const override { return !wait_; }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!wait_) return true;
    const at::NoGradGuard no_grad;
    wait_(timeout == kNoTimeout ? timeout_ : timeout);
    wait_ = nullptr;
    return true;
  }

 private:
  SharedMail::Wait wait_;  // empty when it is over
  std::chrono::milliseconds timeout_;
};

class SharedMemoryBackend final : public c10d::Backend, public CollectivesInMemory {
 public:
  SharedMemoryBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<SharedChannel> channel,
                      std::chrono::milliseconds timeout)
      : Backend(gloo->getRank(), gloo->getSize()),
        gloo_(std::move(gloo)),
        channel_(std::move(channel)),
        timeout_(timeout) {}

  const std::string getBackendName() const override { return "shared memory, " + gloo_->getBackendName(); }

  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
    gloo_->setTimeout(timeout);
  }

  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return channel_->buffer(size, options.dtype().toScalarType());
  }

  bool can_allocate(at::ScalarType dtype, std::int64_t numel) const override {
    return channel_->can_allocate(dtype, numel);
  }

  Started all_gather_in_place(at::ScalarType dtype, std::int64_t numel, GatherWork::Write write) override {
    auto gather = channel_->gather(dtype, numel);
    auto output = gather->output();
    return {output, c10::make_intrusive<GatherWork>(std::move(gather), output, timeout_, std::move(write))};
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    if (!outputs.empty()) return gloo_->allgather(outputs, inputs, options);
    return start(SharedKind::kAllGather, inputs.at(0), nullptr);
  }

  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    const auto by_rank = output.view({size_, input.numel()});
    return start(SharedKind::kAllGather, input, [by_rank, input, rank = rank_](const auto& inputs, auto&) {
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        auto part = by_rank[static_cast<std::int64_t>(r)];
        if (static_cast<int>(r) != rank || part.const_data_ptr() != input.const_data_ptr())
          kernels::copy_past_caches(part, inputs[r]);
      }
    });
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    if (!can_reduce(input.scalar_type()) || options.reduceOp != c10d::ReduceOp::SUM) {
      return gloo_->_reduce_scatter_base(output, input, options);
    }
    const at::NoGradGuard no_grad;
    const auto by_rank = input.view({size_, output.numel()});
    auto others = channel_->buffer((size_ - 1) * output.numel(), input.scalar_type());
    const auto rows = others.view({size_ - 1, output.numel()});
    for (int r = 0; r < size_; ++r) (r == rank_ ? output.view(-1) : rows[row_of(r, rank_)]).copy_(by_rank[r]);
    return start_reduce_scatter(output, others, output.scalar_type(), /*divisor=*/1);
  }

  c10::intrusive_ptr<c10d::Work> reduce_scatter_parts(const at::Tensor& own, const at::Tensor& others,
                                                      at::ScalarType dtype, const c10d::ReduceOp& op) override {
    const bool is_mean = op == c10d::ReduceOp::AVG;
    TITAN_CHECK(can_reduce(dtype) && (is_mean || op == c10d::ReduceOp::SUM),
                "reduce_scatter_parts: only sums and means of numbers");
    return start_reduce_scatter(own, others, dtype, is_mean ? size_ : 1);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const auto kind = kind_of(options.reduceOp);
    const bool reads_too_much = size_ > kMostRanksOfAnyInput && tensors.at(0).nbytes() >= kLargeInput;
    if (tensors.size() != 1 || !can_reduce(tensors[0].scalar_type()) || !kind || reads_too_much) {
      return gloo_->allreduce(tensors, options);
    }
    const auto all = tensors[0].view(-1);
    return start(*kind, tensors[0], [all, kind = *kind](const auto& inputs, auto&) {
      if (kind == SharedKind::kSum) {
        add_as_ring(all, inputs, 0, all.numel());
      } else {
        pick_out(all, inputs, kind);
      }
    });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const auto all = tensors.at(0).view(-1);
    const auto root = static_cast<int>(options.rootRank);
    // The root waits for all ranks, so that it does not run ahead without limit.
    if (root == rank_) return start(SharedKind::kBroadcast, all, nullptr);
    const SharedSignature signature{SharedKind::kBroadcast, all.scalar_type(), all.numel()};
    return start(
        signature, all.slice(0, 0, 0), [all](const auto& inputs, auto&) { all.copy_(inputs[0]); }, root);
  }

  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override {
    return start(SharedKind::kBarrier, at::empty({0}), nullptr);
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) override {
    const at::NoGradGuard no_grad;
    channel_->mail().send(tensors.at(0), to);
    return c10::make_intrusive<MailWork>(nullptr, timeout_);
  }

  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) override {
    return c10::make_intrusive<MailWork>(channel_->mail().receive(tensors.at(0), from), timeout_);
  }

 private:
  // Returns the row of rank `reader`'s part among those that `owner` publishes: all but its own.
  static std::int64_t row_of(int reader, int owner) { return reader < owner ? reader : reader - 1; }

  // Sums `own` [n] and what the others publish for this rank, divided by `divisor`; in `own` if that has `dtype`.
  // `others` are the other ranks' parts.
  c10::intrusive_ptr<c10d::Work> start_reduce_scatter(const at::Tensor& own, const at::Tensor& others,
                                                      at::ScalarType dtype, int divisor) {
    const auto add = [mine = own.view(-1), dtype, divisor, rank = rank_](const auto& inputs, auto& result) {
      std::vector<at::Tensor> parts;
      for (int r = 0; r < static_cast<int>(inputs.size()); ++r)
        parts.push_back(r == rank ? mine : inputs[r].narrow(0, row_of(rank, r) * mine.numel(), mine.numel()));
      const auto sum = mine.scalar_type() == dtype ? mine : at::empty(mine.sizes(), mine.options().dtype(dtype));
      add_as_ring(sum, parts, rank * mine.numel(), static_cast<std::int64_t>(inputs.size()) * mine.numel(), divisor);
      result = {sum};
    };
    return start(SharedKind::kReduceScatter, others, add);
  }

  c10::intrusive_ptr<c10d::Work> start(SharedKind kind, const at::Tensor& input, SharedWork::Finish finish) {
    return start(SharedSignature{kind, input.scalar_type(), input.numel()}, input, std::move(finish), std::nullopt);
  }

  c10::intrusive_ptr<c10d::Work> start(const SharedSignature& signature, const at::Tensor& input,
                                       SharedWork::Finish finish, std::optional<int> root) {
    const at::NoGradGuard no_grad;
    return c10::make_intrusive<SharedWork>(channel_->publish(signature, input), timeout_, std::move(finish), root);
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<SharedChannel> channel_;
  std::chrono::milliseconds timeout_;
};

// Exchanges texts of any length between the ranks while they connect. Use each name once.
class Exchange {
 public:
  Exchange(c10d::Backend& gloo, c10d::Store& store, std::chrono::milliseconds timeout)
      : gloo_(gloo), store_(store), timeout_(timeout) {}

  // Returns the texts of all ranks, in rank order. Collective.
  std::vector<std::string> all_gather(const std::string& name, const std::string& mine) {
    std::vector<std::string> keys, texts;
    for (int r = 0; r < gloo_.getSize(); ++r) keys.push_back(name + "/" + std::to_string(r));
    store_.set(keys[static_cast<std::size_t>(gloo_.getRank())], mine);
    // The store would wait the full timeout for a rank that has ended; Gloo notices at once.
    gloo_.barrier()->wait();
    store_.wait(keys, timeout_);  // a text may still be on its way to the store
    for (const auto& text : store_.multiGet(keys)) texts.emplace_back(text.begin(), text.end());
    return texts;
  }

 private:
  c10d::Backend& gloo_;
  c10d::Store& store_;
  std::chrono::milliseconds timeout_;
};

// Runs one step of this rank. Returns its error, to be sent to all ranks; empty if it succeeds.
std::string failure_of(int global_rank, const std::function<void()>& step) {
  try {
    step();
    return "";
  } catch (const std::exception& error) {
    return "rank " + std::to_string(global_rank) + " " + message_of_error(error);
  }
}

// Connects the ranks. Returns null on all ranks, with a warning on the first, if some rank cannot take part.
std::shared_ptr<SharedChannel> connect_channel(Exchange exchange, int rank, int global_rank, std::size_t capacity) {
  std::shared_ptr<SharedChannel> channel;
  auto failure =
      failure_of(global_rank, [&] { channel = std::make_shared<SharedChannel>(rank, global_rank, capacity); });
  const auto texts = exchange.all_gather("address", channel ? to_text(channel->address()) : "");
  const auto is_empty = [](const std::string& text) { return text.empty(); };
  if (std::ranges::none_of(texts, is_empty)) {
    failure = failure_of(global_rank, [&] {
      std::vector<SegmentAddress> addresses;
      for (const auto& text : texts) addresses.push_back(segment_address_from_text(text));
      channel->connect(addresses);
    });
  }
  const auto failures = exchange.all_gather("failure", failure);
  const auto first = std::ranges::find_if_not(failures, is_empty);
  if (first == failures.end()) return channel;
  if (rank == 0) spdlog::warn("[dist] ranks of this host do not share memory and use sockets: {}", *first);
  return nullptr;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_shared_memory_backend(c10::intrusive_ptr<c10d::Backend> gloo, c10d::Store& store,
                                                             int global_rank, std::chrono::milliseconds timeout,
                                                             std::size_t capacity) {
  auto channel = connect_channel({*gloo, store, timeout}, gloo->getRank(), global_rank, capacity);
  if (!channel) return gloo;
  return c10::make_intrusive<SharedMemoryBackend>(std::move(gloo), std::move(channel), timeout);
}

}  // namespace titan::dist
