#include "data/batch_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "data/registry.h"

namespace titan::data {
namespace {

struct HostBatch {
  std::int64_t rows = 0;
  std::vector<std::int64_t> tokens;  // [rows, seq_len]
  std::vector<std::int64_t> labels;
  Packer::Snapshot after{};
};

// What the thread puts into the queue: a batch, or the end with the exception that made it.
struct Item {
  std::optional<HostBatch> batch;
  std::exception_ptr error;
};

HostBatch make_host_batch(Packer& packer, const LoaderOptions& options) {
  const auto seq_len = static_cast<std::size_t>(options.seq_len);
  const auto size = static_cast<std::size_t>(options.local_batch_size) * seq_len;
  HostBatch batch;
  batch.tokens.resize(size);
  batch.labels.resize(size);
  for (; batch.rows < options.local_batch_size; ++batch.rows) {
    const std::size_t row = static_cast<std::size_t>(batch.rows) * seq_len;
    if (!packer.next_window(std::span(batch.tokens).subspan(row, seq_len),
                            std::span(batch.labels).subspan(row, seq_len)))
      break;
  }
  batch.after = packer.snapshot();
  return batch;
}

at::Tensor to_tensor(std::vector<std::int64_t>&& values, std::int64_t rows, std::int64_t seq_len, bool pin_memory) {
  auto* owned = new std::vector<std::int64_t>(std::move(values));
  at::Tensor tensor = at::from_blob(
      owned->data(), {rows, seq_len}, [owned](void*) { delete owned; }, at::TensorOptions(at::kLong));
  if (!pin_memory) return tensor;
  at::Tensor pinned = at::empty({rows, seq_len}, at::TensorOptions(at::kLong).pinned_memory(true));
  pinned.copy_(tensor);
  return pinned;
}

class BatchLoader final : public BatchSource {
 public:
  BatchLoader(std::unique_ptr<Packer> packer, const LoaderOptions& options)
      : packer_(std::move(packer)), options_(options), returned_(packer_->snapshot()) {
    TITAN_CHECK(options.local_batch_size > 0 && options.seq_len > 0 && options.prefetch_batches > 0,
                "batch size, seq_len and prefetch must be positive");
  }

  ~BatchLoader() override { stop(); }

  std::optional<Batch> next() override {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    std::optional<HostBatch> host = pop();
    if (!host) return std::nullopt;
    returned_ = std::move(host->after);
    ++num_batches_;
    return Batch{.tokens = to_tensor(std::move(host->tokens), host->rows, options_.seq_len, options_.pin_memory),
                 .labels = to_tensor(std::move(host->labels), host->rows, options_.seq_len, options_.pin_memory)};
  }

  DataPosition position() const override {
    return {.num_batches = num_batches_, .sample_idx = returned_.sample_idx, .token_buffer = returned_.token_buffer()};
  }

  void seek(const DataPosition& position) override {
    stop();
    packer_->seek(position.sample_idx, position.token_buffer);
    returned_ = packer_->snapshot();
    num_batches_ = position.num_batches;
  }

 private:
  // The thread: alone touches packer_ while it runs.
  void run() {
    while (true) {
      Item item;
      try {
        HostBatch batch = make_host_batch(*packer_, options_);
        if (batch.rows > 0) item.batch = std::move(batch);
      } catch (...) {
        item.error = std::current_exception();
      }
      const bool last = !item.batch;
      if (!push(std::move(item)) || last) return;
    }
  }

  // False when the loader is stopping.
  bool push(Item&& item) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [&] { return stopping_ || std::ssize(queue_) < options_.prefetch_batches; });
    if (stopping_) return false;
    queue_.push_back(std::move(item));
    has_item_.notify_one();
    return true;
  }

  std::optional<HostBatch> pop() {
    std::unique_lock lock(mutex_);
    has_item_.wait(lock, [&] { return !queue_.empty(); });
    // The end stays in the queue, so that every later call meets it too.
    if (queue_.front().error) std::rethrow_exception(queue_.front().error);
    if (!queue_.front().batch) return std::nullopt;
    std::optional<HostBatch> batch = std::move(queue_.front().batch);
    queue_.pop_front();
    has_room_.notify_one();
    return batch;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    has_room_.notify_all();
    if (thread_.joinable()) thread_.join();
    thread_ = {};
    queue_.clear();
    stopping_ = false;
  }

  std::unique_ptr<Packer> packer_;
  const LoaderOptions options_;
  Packer::Snapshot returned_;  // as of the last batch returned
  std::int64_t num_batches_ = 0;

  std::mutex mutex_;  // guards queue_ and stopping_
  std::condition_variable has_room_;
  std::condition_variable has_item_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<BatchSource> make_batch_loader(std::unique_ptr<Packer> packer, const LoaderOptions& options) {
  return std::make_unique<BatchLoader>(std::move(packer), options);
}

std::unique_ptr<BatchSource> make_batch_source(const DataOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  std::shared_ptr<const TextSource> source = open_dataset(options.dataset, options.dataset_path);
  auto packer = std::make_unique<Packer>(std::move(source), std::move(tokenizer),
                                         Packer::Options{.dataset_name = options.dataset,
                                                         .seq_len = options.seq_len,
                                                         .dp_rank = options.dp_rank,
                                                         .dp_size = options.dp_size,
                                                         .infinite = options.infinite});
  return make_batch_loader(
      std::move(packer),
      {.local_batch_size = options.local_batch_size, .seq_len = options.seq_len, .pin_memory = options.pin_memory});
}

}  // namespace titan::data
