#include "data/batch_loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/threads/start_thread.h"
#include "data/io/hash.h"
#include "data/order/saved_order.h"

namespace titan::data {
namespace {

struct HostBatch {
  std::int64_t rows = 0;
  std::vector<std::int64_t> tokens;  // [rows, seq_len]
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> documents{};         // empty if the loader has none
  std::vector<std::int64_t> labels_of_sample{};  // empty if the loader has none
  std::shared_ptr<const RowPosition> after{};
  std::int64_t bad_records = 0;
  std::vector<SampleId> samples{};  // for the sample log
};

// An element of the queue: a batch, or the end of the data with the exception, if any, that caused it.
struct Queued {
  std::optional<HostBatch> batch;
  std::exception_ptr error;
};

HostBatch make_host_batch(RowSource& rows, const LoaderOptions& options) {
  const auto seq_len = static_cast<std::size_t>(options.seq_len);
  const auto size = static_cast<std::size_t>(options.local_batch_size) * seq_len;
  HostBatch batch;
  batch.tokens.resize(size);
  batch.labels.resize(size);
  if (options.has_documents) batch.documents.resize(size);
  if (options.weighs_samples) batch.labels_of_sample.resize(size);
  for (; batch.rows < options.local_batch_size; ++batch.rows) {
    const std::size_t row = static_cast<std::size_t>(batch.rows) * seq_len;
    const auto part = [&](std::vector<std::int64_t>& values) {
      return values.empty() ? std::span<std::int64_t>() : std::span(values).subspan(row, seq_len);
    };
    if (!rows.next_row({part(batch.tokens), part(batch.labels), part(batch.documents), part(batch.labels_of_sample)}))
      break;
    if (!options.sample_log.empty()) batch.samples.push_back(rows.sample_id());
  }
  batch.after = rows.position();
  batch.bad_records = rows.bad_records();
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

// Writes one JSON object per row: which sample it is, where its tokens begin, and a hash of its tokens and labels.
// Flushes after each batch, so that the log of a killed run holds what was returned to the train loop.
class SampleLog {
 public:
  explicit SampleLog(const std::filesystem::path& path) : path_(path), file_(path, std::ios::app) {
    if (!file_) throw DataError("cannot write the sample log " + path.string());
  }

  void write(const HostBatch& batch, std::int64_t batch_index, std::int64_t seq_len) {
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      const SampleId& id = batch.samples[static_cast<std::size_t>(row)];
      file_ << "{\"batch\": " << batch_index << ", \"row\": " << row << ", \"sample\": " << id.sample
            << ", \"source\": " << id.source << ", \"item\": " << id.item << ", \"token\": " << id.token
            << ", \"hash\": \"" << hash(batch, row, seq_len) << "\"}\n";
    }
    if (!file_.flush()) throw DataError("cannot write the sample log " + path_.string());
  }

 private:
  static std::uint64_t hash(const HostBatch& batch, std::int64_t row, std::int64_t seq_len) {
    std::uint64_t state = 0;
    for (std::int64_t i = row * seq_len; i < (row + 1) * seq_len; ++i) {
      const auto at = static_cast<std::size_t>(i);
      state = mix_bits(state ^ static_cast<std::uint64_t>(batch.tokens[at]));
      state = mix_bits(state ^ static_cast<std::uint64_t>(batch.labels[at]));
    }
    return state;
  }

  std::filesystem::path path_;
  std::ofstream file_;
};

class BatchLoader final : public BatchSource {
 public:
  BatchLoader(std::unique_ptr<RowSource> rows, const LoaderOptions& options)
      : rows_(std::move(rows)), options_(options), returned_(rows_->position()) {
    TITAN_CHECK(options.local_batch_size > 0 && options.seq_len > 0 && options.prefetch_batches > 0,
                "batch size, seq_len and prefetch must be positive");
    if (!options.sample_log.empty()) sample_log_.emplace(options.sample_log);
  }

  ~BatchLoader() override { stop(); }

  std::optional<Batch> next() override {
    if (!thread_.joinable()) thread_ = start_thread("reads the data ahead", [this] { run(); });
    std::optional<HostBatch> host = pop();
    if (!host) return std::nullopt;
    returned_ = std::move(host->after);
    bad_records_ = host->bad_records;
    if (sample_log_) sample_log_->write(*host, num_batches_, options_.seq_len);
    ++num_batches_;
    const auto tensor = [&](std::vector<std::int64_t>& values) {
      return to_tensor(std::move(values), host->rows, options_.seq_len, options_.pin_memory);
    };
    Batch batch{.tokens = tensor(host->tokens), .labels = tensor(host->labels)};
    if (options_.has_documents) batch.documents = tensor(host->documents);
    if (options_.weighs_samples) batch.labels_of_sample = tensor(host->labels_of_sample);
    return batch;
  }

  std::vector<StateEntry> state() const override { return returned_->entries(num_batches_); }

  void load_state(const Values& saved) override {
    stop();
    num_batches_ = rows_->load_state(saved);
    returned_ = rows_->position();
  }

  void restart() override {
    stop();
    num_batches_ = 0;
    rows_->restart();
    returned_ = rows_->position();
  }

  std::vector<std::string> probes() const override { return order_keys(); }
  // Safe while the thread runs: it reads nothing that next_row() changes.
  void check_state(const Values& saved) const override { rows_->check_state(saved); }

  std::string description() const override { return options_.description; }

  std::optional<std::int64_t> bad_records() const override {
    return options_.report_bad_records ? std::optional(bad_records_) : std::nullopt;
  }

 private:
  // Body of the prefetch thread. While it runs, only it changes rows_.
  void run() {
    while (true) {
      Queued queued;
      try {
        HostBatch batch = make_host_batch(*rows_, options_);
        if (batch.rows > 0) queued.batch = std::move(batch);
      } catch (...) {
        queued.error = std::current_exception();
      }
      const bool last = !queued.batch;
      if (!push(std::move(queued)) || last) return;
    }
  }

  // Returns false if the loader is stopping.
  bool push(Queued&& queued) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [&] { return stopping_ || std::ssize(queue_) < options_.prefetch_batches; });
    if (stopping_) return false;
    queue_.push_back(std::move(queued));
    has_item_.notify_one();
    return true;
  }

  std::optional<HostBatch> pop() {
    std::unique_lock lock(mutex_);
    has_item_.wait(lock, [&] { return !queue_.empty(); });
    // The end stays in the queue, so that every later call sees it too.
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

  std::unique_ptr<RowSource> rows_;
  const LoaderOptions options_;
  std::shared_ptr<const RowPosition> returned_;  // after the last batch returned
  std::int64_t num_batches_ = 0;
  std::int64_t bad_records_ = 0;
  std::optional<SampleLog> sample_log_;

  std::mutex mutex_;  // guards queue_ and stopping_
  std::condition_variable has_room_;
  std::condition_variable has_item_;
  std::deque<Queued> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<BatchSource> make_batch_loader(std::unique_ptr<RowSource> rows, const LoaderOptions& options) {
  return std::make_unique<BatchLoader>(std::move(rows), options);
}

}  // namespace titan::data
