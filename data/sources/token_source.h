// Tokens by item number: what an order draws from. An item is a document, a part of one, or a window of shards that
// were tokenized before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sources/text_source.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

// Some of the tokens of `owner`, which it keeps alive.
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

  // The tokens of item `index` in [0, num_items()), possibly none; a pure function of `index`. Throws BadRecord when
  // this item alone is unusable, DataError for anything else.
  virtual TokenRun tokens(std::int64_t index) const = 0;

  // Every token is below it.
  virtual std::int64_t vocab_size() const = 0;

  // For messages: "dataset \"jsonl\"".
  virtual std::string name() const = 0;
};

// Documents, each with BOS and EOS (see Tokenizer::encode_document). `kind` is the dataset's, for messages.
std::shared_ptr<const TokenSource> tokenize_documents(std::shared_ptr<const TextSource> source,
                                                      std::shared_ptr<const Tokenizer> tokenizer, std::string kind);

// At least `wanted` items: the source itself when it has as many, else the same tokens with every item cut into equal
// parts (item i becomes items i * parts ...). Then the tokens of all items that are in use at once stay in memory.
std::shared_ptr<const TokenSource> with_items(std::shared_ptr<const TokenSource> source, std::int64_t wanted);

// What to do with a record that cannot be used: training.on_bad_record.
enum class OnBadRecord { kError, kSkip };

// Throws ConfigError for anything but "error" and "skip".
OnBadRecord parse_on_bad_record(const std::string& text);

// source.tokens(index); with kSkip a BadRecord gives no tokens and adds one to `skipped`, and is logged the first
// times.
TokenRun read_item(const TokenSource& source, std::int64_t index, OnBadRecord policy, std::int64_t& skipped);

}  // namespace titan::data
