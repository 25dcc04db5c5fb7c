// Tokens by item number, from which the data orders draw. An item is a document, a part of one, or a window of
// tokenized shards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sources/text_source.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// A range of the tokens in `owner`, which it keeps alive.
struct TokenRun {
  std::shared_ptr<const std::vector<std::int32_t>> owner;
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
};

TokenRun whole_run(std::vector<std::int32_t> tokens);

// Const calls may run on several threads at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual std::int64_t num_items() const = 0;

  // Returns the tokens of item `index` in [0, num_items()), possibly none; a pure function of `index`. Throws BadRecord
  // if only this item is unusable, DataError for anything else.
  virtual TokenRun tokens(std::int64_t index) const = 0;

  // Upper bound of all tokens, exclusive.
  virtual std::int64_t vocab_size() const = 0;

  // Name for messages: "dataset \"jsonl\"".
  virtual std::string name() const = 0;

  // Returns what the items are, for the log: "473 documents".
  virtual std::string contents() const;

  // True if each item is a row of its own, with the marks of token_marks.h: it must not be cut.
  virtual bool holds_packs() const { return false; }
};

// Tokenizes documents, each with BOS and EOS (see Tokenizer::encode_document). `kind` is the dataset's, for messages.
std::shared_ptr<const TokenSource> tokenize_documents(std::shared_ptr<const TextSource> source,
                                                      std::shared_ptr<const Tokenizer> tokenizer, std::string kind);

// Returns a source with at least `wanted` items: `source` itself if it has as many, else the same tokens with every
// item cut into equal parts (item i becomes items i * parts ...); packs are not cut. A cut source keeps the tokens of
// all items in use in memory.
std::shared_ptr<const TokenSource> with_items(std::shared_ptr<const TokenSource> source, std::int64_t wanted);

// Policy for an unusable record: training.on_bad_record.
enum class OnBadRecord { kError, kSkip };

// Throws ConfigError for anything but "error" and "skip".
OnBadRecord parse_on_bad_record(const std::string& text);

// Returns source.tokens(index). With kSkip, a BadRecord gives no tokens and adds one to `skipped`; the first five are
// logged.
TokenRun read_item(const TokenSource& source, std::int64_t index, OnBadRecord policy, std::int64_t& skipped);

}  // namespace titan::data
