// Documents of one rank -> one stream of tokens -> windows of seq_len + 1 tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/text_source.h"
#include "data/tokenizer.h"

namespace titan::data {

// Windows follow each other without overlap: the last token of a window is the label of its row and the input of none,
// as in TorchTitan. Not thread-safe.
class Packer {
 public:
  struct Options {
    std::string dataset_name;  // for messages
    std::int64_t seq_len = 0;
    std::int64_t dp_rank = 0;
    std::int64_t dp_size = 1;
    bool infinite = true;  // start again at the first document of the block, keeping the tokens left over
  };

  // Where the stream stands between two windows. Cheap to copy: the tokens are shared.
  struct Snapshot {
    std::int64_t sample_idx = 0;  // documents of the block tokenized since the last re-loop
    std::shared_ptr<const std::vector<std::int32_t>> tokens;
    std::size_t consumed = 0;  // of `tokens`; null tokens count as empty

    std::vector<std::int64_t> token_buffer() const;  // the tokens not consumed
  };

  // Throws DataError when this rank would get no document.
  Packer(std::shared_ptr<const TextSource> source, std::shared_ptr<const Tokenizer> tokenizer, Options options);

  // Writes the next window: `input` its first seq_len tokens, `label` its last seq_len. Both have seq_len elements.
  // False when a finite source has too few tokens left for a window; those are dropped, as in TorchTitan.
  // Throws DataError when a document cannot be read.
  bool next_window(std::span<std::int64_t> input, std::span<std::int64_t> label);

  // As of the last window that next_window() wrote, or the last seek().
  const Snapshot& snapshot() const { return snapshot_; }

  // Continues with `token_buffer`, then document `sample_idx` of the block. Throws DataError when they cannot be of
  // this dataset and tokenizer.
  void seek(std::int64_t sample_idx, std::span<const std::int64_t> token_buffer);

 private:
  bool refill();
  bool reloop();

  std::shared_ptr<const TextSource> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Options options_;
  DocumentBlock block_;
  std::vector<std::int64_t> window_;  // filled up to filled_
  std::size_t filled_ = 0;
  Snapshot stream_;  // ahead of snapshot_ by the tokens in window_
  Snapshot snapshot_;
  bool loop_had_tokens_ = false;  // since the last re-loop or seek
};

}  // namespace titan::data
