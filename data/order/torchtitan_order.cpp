#include "data/order/torchtitan_order.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/text.h"
#include "data/order/saved_order.h"
#include "data/order/write_row.h"

namespace titan::data {
namespace {

class TorchTitanPosition final : public RowPosition {
 public:
  TorchTitanPosition(TorchTitanOrder::Snapshot snapshot, const TorchTitanOrder::Options& options)
      : snapshot_(std::move(snapshot)), rank_(options.rank), batch_size_(options.local_batch_size) {}

  std::vector<StateEntry> entries(std::int64_t num_batches) const override {
    return to_entries({num_batches, snapshot_.sample_idx, snapshot_.token_buffer()}, rank_, batch_size_);
  }

 private:
  TorchTitanOrder::Snapshot snapshot_;
  DataRank rank_;
  std::int64_t batch_size_;
};

}  // namespace

std::vector<std::int64_t> TorchTitanOrder::Snapshot::token_buffer() const {
  if (!tokens.owner) return {};
  const auto begin = tokens.owner->begin();
  return {begin + static_cast<std::ptrdiff_t>(tokens.begin + consumed),
          begin + static_cast<std::ptrdiff_t>(tokens.end)};
}

TorchTitanOrder::TorchTitanOrder(std::shared_ptr<const TokenSource> source, Options options)
    : source_(std::move(source)), options_(std::move(options)) {
  TITAN_CHECK(options_.seq_len > 0, "seq_len " + std::to_string(options_.seq_len));
  const std::int64_t documents = source_->num_items();
  if (documents < options_.rank.size) {
    throw DataError(
        "dataset \"" + options_.dataset_name + "\" has " + with_thousands(documents) +
        (documents == 1 ? " document" : " documents") + " for " + with_thousands(options_.rank.size) +
        " data-parallel ranks: some would have nothing to train on. Use fewer data-parallel ranks, or split "
        "the dataset into more documents.");
  }
  block_ = contiguous_block(documents, options_.rank.rank, options_.rank.size);
  window_.resize(static_cast<std::size_t>(options_.seq_len) + 1);
}

bool TorchTitanOrder::next_row(const RowSpans& row) {
  while (filled_ < window_.size()) {
    if (stream_.consumed == stream_.tokens.size()) {
      if (!refill()) return false;
      continue;
    }
    if (filled_ == 0) {
      sample_id_ = {.sample = windows_,
                    .item = block_.start + stream_.sample_idx - 1,
                    .token = static_cast<std::int64_t>(stream_.consumed)};
    }
    const std::size_t count = std::min(window_.size() - filled_, stream_.tokens.size() - stream_.consumed);
    std::copy_n(stream_.tokens.owner->data() + stream_.tokens.begin + stream_.consumed, count,
                window_.data() + filled_);
    filled_ += count;
    stream_.consumed += count;
  }
  ++windows_;
  filled_ = 0;
  snapshot_ = stream_;
  write_row(std::span<const std::int64_t>(window_), row);
  return true;
}

bool TorchTitanOrder::refill() {
  if (stream_.sample_idx == block_.count && !reloop()) return false;
  stream_.tokens = read_item(*source_, block_.start + stream_.sample_idx, options_.on_bad_record, bad_records_);
  loop_had_tokens_ |= stream_.tokens.size() > 0;
  stream_.consumed = 0;
  ++stream_.sample_idx;
  return true;
}

bool TorchTitanOrder::reloop() {
  if (!options_.infinite) return false;
  if (!loop_had_tokens_) {
    throw DataError("dataset \"" + options_.dataset_name + "\": the " + with_thousands(block_.count) +
                    " documents of data-parallel rank " + std::to_string(options_.rank.rank) +
                    " give no tokens at all");
  }
  // Small datasets restart many times per step: logs the first restart, and each time their number has doubled.
  if (std::has_single_bit(++num_loops_))
    spdlog::info("Dataset {} is being re-looped (pass {} over it)", options_.dataset_name, num_loops_ + 1);
  loop_had_tokens_ = false;
  stream_.sample_idx = 0;
  return true;
}

void TorchTitanOrder::seek(std::int64_t sample_idx, std::span<const std::int64_t> token_buffer) {
  const std::string where = "cannot continue dataset \"" + options_.dataset_name + "\" at the saved position: ";
  if (sample_idx < 0 || sample_idx > block_.count) {
    throw DataError(where + "it stands after document " + with_thousands(sample_idx) + " of this rank, which has " +
                    with_thousands(block_.count) + ". Was the dataset, or the number of data-parallel ranks, changed?");
  }
  std::vector<std::int32_t> tokens;
  tokens.reserve(token_buffer.size());
  for (const std::int64_t id : token_buffer) {
    if (id < 0 || id >= source_->vocab_size()) {
      throw DataError(where + "it holds token " + std::to_string(id) + ", the tokenizer has ids 0 to " +
                      std::to_string(source_->vocab_size() - 1) + ". Was the tokenizer changed?");
    }
    tokens.push_back(static_cast<std::int32_t>(id));
  }
  stream_ = {.sample_idx = sample_idx, .tokens = whole_run(std::move(tokens)), .consumed = 0};
  snapshot_ = stream_;
  filled_ = 0;
  // Unknown for the documents before the position; the next pass checks.
  loop_had_tokens_ = true;
}

std::shared_ptr<const RowPosition> TorchTitanOrder::position() const {
  return std::make_shared<TorchTitanPosition>(snapshot_, options_);
}

void TorchTitanOrder::check_state(const Values& saved) const {
  check_order(saved, DataOrder::kTorchTitan);
  const auto ranks = saved.find(kTorchTitanKey);
  if (ranks == saved.end()) return;  // excluded from the load
  const auto then = ranks->second.as_int(kTorchTitanKey);
  if (then != options_.rank.size)
    throw CheckpointError("the dataloader state was saved at " + std::to_string(then) +
                          " data-parallel ranks, this run has " + std::to_string(options_.rank.size) + "; run at " +
                          std::to_string(then) + kOrRestart);
}

std::int64_t TorchTitanOrder::load_state(const Values& saved) {
  check_state(saved);
  const TorchTitanState state = parse_torchtitan_state(saved, options_.rank.rank);
  seek(state.sample_idx, state.token_buffer);
  return state.num_batches;
}

}  // namespace titan::data
