#include "generate/continuation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "generate/cached_model.h"

namespace titan::generate {
namespace {

// A row that has begun and not ended.
struct Row {
  std::size_t index;  // of its prompt
  std::int64_t room;  // tokens that it may get
  std::unique_ptr<KvCache> cache;
  Continuation continuation = {};
};

class Rows {
 public:
  Rows(LanguageModel& model, const Limits& limits, const RowCalls& calls)
      : model_(model), limits_(limits), calls_(calls) {}

  std::size_t size() const { return rows_.size(); }

  // Begins a row: it gets its first token, which may end it.
  void begin(std::size_t index, const std::vector<std::int32_t>& prompt) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    TITAN_CHECK(length > 0 && length < limits_.context, "a prompt of " + std::to_string(length) +
                                                            " tokens does not fit a context of " +
                                                            std::to_string(limits_.context));
    const std::int64_t room = std::min(limits_.max_tokens, limits_.context - length);
    rows_.push_back({index, room, std::make_unique<KvCache>(length + room)});
    const at::Tensor logits = model_.begin(*rows_.back().cache, {prompt.begin(), prompt.end()});
    add(rows_.size() - 1, logits);
  }

  // Gives each row its next token.
  void next() {
    std::vector<KvCache*> caches;
    std::vector<std::int64_t> tokens;
    for (const Row& row : rows_) {
      caches.push_back(row.cache.get());
      tokens.push_back(row.continuation.ids.back());
    }
    add(0, model_.next(caches, tokens));
  }

 private:
  // Chooses a token for each row from `first` on, and drops the rows that it ends.
  void add(std::size_t first, const at::Tensor& logits) {
    std::vector<std::size_t> indices;
    for (std::size_t i = first; i < rows_.size(); ++i) indices.push_back(rows_[i].index);
    const auto ids = calls_.pick(logits, indices);
    std::vector<Row> kept;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Row& row = rows_[i];
      if (i < first || goes_on(row, ids.at(i - first))) {
        kept.push_back(std::move(row));
      } else {
        calls_.on_end(row.index, std::move(row.continuation));
      }
    }
    rows_ = std::move(kept);
  }

  // Adds a token to a row. Returns false if it is the last.
  bool goes_on(Row& row, std::int64_t id) const {
    Continuation& out = row.continuation;
    out.ids.push_back(static_cast<std::int32_t>(id));
    const bool wants_more = !calls_.on_token || calls_.on_token(row.index, out.ids.back());
    if (std::ranges::count(limits_.stop_ids, id) > 0) {
      out.end = End::kStopToken;
    } else if (!wants_more) {
      out.end = End::kCaller;
    } else if (std::ssize(out.ids) == row.room) {
      out.end = row.room < limits_.max_tokens ? End::kContext : End::kMaxTokens;
    } else {
      return true;
    }
    return false;
  }

  CachedModel model_;
  const Limits& limits_;
  const RowCalls& calls_;
  std::vector<Row> rows_;
};

}  // namespace

void continue_rows(LanguageModel& model, std::span<const std::vector<std::int32_t>> prompts, std::size_t at_once,
                   const Limits& limits, const RowCalls& calls) {
  const at::NoGradGuard no_grad;
  Rows rows(model, limits, calls);
  std::size_t begun = 0;
  while (begun < prompts.size() || rows.size() > 0) {
    while (begun < prompts.size() && rows.size() < at_once) {
      rows.begin(begun, prompts[begun]);
      ++begun;
    }
    if (rows.size() > 0) rows.next();
  }
}

Continuation continue_tokens(LanguageModel& model, std::span<const std::int32_t> prompt, const Limits& limits,
                             const Pick& pick, const std::function<bool(std::int32_t)>& on_token) {
  Continuation out;
  RowCalls calls;
  calls.pick = [&](const at::Tensor& logits, std::span<const std::size_t>) {
    return std::vector<std::int64_t>{pick(logits[0])};
  };
  if (on_token) calls.on_token = [&](std::size_t, std::int32_t id) { return on_token(id); };
  calls.on_end = [&](std::size_t, Continuation continuation) { out = std::move(continuation); };
  const std::vector<std::vector<std::int32_t>> prompts = {{prompt.begin(), prompt.end()}};
  continue_rows(model, prompts, /*at_once=*/1, limits, calls);
  return out;
}

}  // namespace titan::generate
