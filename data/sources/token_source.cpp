#include "data/sources/token_source.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace titan::data {
namespace {

class TokenizedDocuments final : public TokenSource {
 public:
  TokenizedDocuments(std::shared_ptr<const TextSource> source, std::shared_ptr<const Tokenizer> tokenizer,
                     std::string kind)
      : source_(std::move(source)), tokenizer_(std::move(tokenizer)), kind_(std::move(kind)) {}

  std::int64_t num_items() const override { return source_->num_documents(); }

  TokenRun tokens(std::int64_t index) const override {
    std::vector<std::int32_t> ids;
    tokenizer_->encode_document(source_->document(index), ids);
    return whole_run(std::move(ids));
  }

  std::int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::string name() const override { return "dataset \"" + kind_ + "\""; }

 private:
  std::shared_ptr<const TextSource> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string kind_;
};

class SplitItems final : public TokenSource {
 public:
  SplitItems(std::shared_ptr<const TokenSource> source, std::int64_t parts)
      : source_(std::move(source)), parts_(parts), in_use_(static_cast<std::size_t>(source_->num_items())) {}

  std::int64_t num_items() const override { return source_->num_items() * parts_; }

  TokenRun tokens(std::int64_t index) const override {
    TokenRun run = whole(index / parts_);
    const auto part = static_cast<std::size_t>(index % parts_);
    const auto parts = static_cast<std::size_t>(parts_);
    const std::size_t begin = run.begin, size = run.size();
    run.begin = begin + size * part / parts;
    run.end = begin + size * (part + 1) / parts;
    return run;
  }

  std::int64_t vocab_size() const override { return source_->vocab_size(); }
  std::string name() const override { return source_->name(); }

 private:
  struct Kept {
    std::weak_ptr<const std::vector<std::int32_t>> owner;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // Returns the full item. Lanes that read parts of it at the same time share its tokens: it is tokenized once.
  TokenRun whole(std::int64_t index) const {
    const std::lock_guard lock(mutex_);
    Kept& kept = in_use_[static_cast<std::size_t>(index)];
    if (auto owner = kept.owner.lock()) return {std::move(owner), kept.begin, kept.end};
    TokenRun run = source_->tokens(index);
    kept = {run.owner, run.begin, run.end};
    return run;
  }

  std::shared_ptr<const TokenSource> source_;
  std::int64_t parts_;
  mutable std::mutex mutex_;  // guards in_use_
  mutable std::vector<Kept> in_use_;
};

}  // namespace

std::string TokenSource::contents() const { return counted(num_items(), "document"); }

TokenRun whole_run(std::vector<std::int32_t> tokens) {
  const std::size_t size = tokens.size();
  return {std::make_shared<const std::vector<std::int32_t>>(std::move(tokens)), 0, size};
}

std::shared_ptr<const TokenSource> tokenize_documents(std::shared_ptr<const TextSource> source,
                                                      std::shared_ptr<const Tokenizer> tokenizer, std::string kind) {
  return std::make_shared<TokenizedDocuments>(std::move(source), std::move(tokenizer), std::move(kind));
}

std::shared_ptr<const TokenSource> with_items(std::shared_ptr<const TokenSource> source, std::int64_t wanted) {
  const std::int64_t items = source->num_items();
  TITAN_CHECK(items > 0, source->name() + " has no items");
  if (items >= wanted || source->holds_packs()) return source;
  return std::make_shared<SplitItems>(std::move(source), (wanted + items - 1) / items);
}

OnBadRecord parse_on_bad_record(const std::string& text) {
  if (text == "error") return OnBadRecord::kError;
  if (text == "skip") return OnBadRecord::kSkip;
  throw ConfigError("training.on_bad_record: expected \"error\" or \"skip\", found \"" + text + "\"");
}

TokenRun read_item(const TokenSource& source, std::int64_t index, OnBadRecord policy, std::int64_t& skipped) {
  constexpr std::int64_t kLogged = 5;
  if (policy == OnBadRecord::kError) return source.tokens(index);
  try {
    return source.tokens(index);
  } catch (const BadRecord& error) {
    if (++skipped <= kLogged) {
      spdlog::warn("skipped a record: {}{}", error.what(),
                   skipped == kLogged ? " (further ones are only counted, as bad_records in the metrics)" : "");
    }
    return whole_run({});
  }
}

}  // namespace titan::data
