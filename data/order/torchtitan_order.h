// TorchTitan's order: the items (documents) of one rank's block -> one stream of tokens -> windows of seq_len + 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/order/row_source.h"
#include "data/order/torchtitan_state.h"
#include "data/sources/token_source.h"

namespace titan::data {

// Cuts windows without overlap, as TorchTitan does: the last token of a window is a label of its row and never an
// input. Not thread-safe.
class TorchTitanOrder final : public RowSource {
 public:
  struct Options {
    std::string dataset_name;  // a kind, for messages
    std::int64_t seq_len = 0;
    DataRank rank = {};
    std::int64_t local_batch_size = 1;
    bool infinite = true;  // start again at the first document of the block, keeping the tokens left over
    OnBadRecord on_bad_record = OnBadRecord::kError;
  };

  // Position of the stream between two windows. Cheap to copy: the tokens are shared.
  struct Snapshot {
    std::int64_t sample_idx = 0;  // documents of the block tokenized since the last re-loop
    TokenRun tokens;
    std::size_t consumed = 0;  // number of `tokens` used

    std::vector<std::int64_t> token_buffer() const;  // the tokens not consumed
  };

  // Throws DataError if there are fewer documents than data-parallel ranks.
  TorchTitanOrder(std::shared_ptr<const TokenSource> source, Options options);
  TorchTitanOrder(std::shared_ptr<const TextSource> source, std::shared_ptr<const Tokenizer> tokenizer, Options options)
      : TorchTitanOrder(tokenize_documents(std::move(source), std::move(tokenizer), options.dataset_name), options) {}

  // Returns false if a finite source has too few tokens left for a window; these are dropped, as in TorchTitan. Throws
  // DataError if a document cannot be read.
  bool next_row(const RowSpans& row) override;

  // The position after the last window that next_row() wrote, or after a later seek() or restart().
  const Snapshot& snapshot() const { return snapshot_; }

  // Continues with `token_buffer`, then document `sample_idx` of the block. Throws DataError if they cannot belong to
  // this dataset and tokenizer.
  void seek(std::int64_t sample_idx, std::span<const std::int64_t> token_buffer);

  SampleId sample_id() const override { return sample_id_; }
  std::shared_ptr<const RowPosition> position() const override;
  std::int64_t load_state(const Values& saved) override;
  void restart() override { seek(0, {}); }
  void check_state(const Values& saved) const override;
  std::int64_t bad_records() const override { return bad_records_; }

 private:
  bool refill();
  bool reloop();

  std::shared_ptr<const TokenSource> source_;
  Options options_;
  DocumentBlock block_;
  std::vector<std::int64_t> window_;  // filled up to filled_
  std::size_t filled_ = 0;
  Snapshot stream_;  // ahead of snapshot_ by the tokens in window_
  Snapshot snapshot_;
  std::uint64_t num_loops_ = 0;   // in this process
  bool loop_had_tokens_ = false;  // since the last re-loop or seek
  std::int64_t windows_ = 0;
  SampleId sample_id_;
  std::int64_t bad_records_ = 0;
};

}  // namespace titan::data
