// Continues sequences of tokens with a model, one token of each at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "contract/model.h"

namespace titan::generate {

struct Limits {
  std::int64_t max_tokens = 0;              // of the continuation
  std::int64_t context = 0;                 // of prompt and continuation together: the model's longest sequence
  std::vector<std::int64_t> stop_ids = {};  // each of them ends the continuation, as its last token
};

enum class End { kStopToken, kMaxTokens, kContext, kCaller };

struct Continuation {
  std::vector<std::int32_t> ids;
  End end = End::kMaxTokens;
};

// Chooses the next token from its logits [V], in the model's dtype and on its device.
using Pick = std::function<std::int64_t(const at::Tensor& logits)>;

// Continues `prompt`, which has at least one token and leaves room for one in the context. `on_token`, if set,
// receives every id as soon as it is chosen, and ends the text after it by returning false. No gradients. Collective if
// the model is sharded: all ranks call it with the same prompt and limits, and `pick` and `on_token` must return the
// same on all of them. The model has no cache afterwards.
Continuation continue_tokens(LanguageModel& model, std::span<const std::int32_t> prompt, const Limits& limits,
                             const Pick& pick, const std::function<bool(std::int32_t)>& on_token = {});

// Holds what the caller of continue_rows() does with its rows. A row has the index of its prompt.
struct RowCalls {
  // Returns the next token of each of `rows`, from their logits [rows, V].
  std::function<std::vector<std::int64_t>(const at::Tensor& logits, std::span<const std::size_t> rows)> pick;
  // As `on_token` of continue_tokens(). May be empty.
  std::function<bool(std::size_t row, std::int32_t id)> on_token = {};
  // Receives each continuation as soon as it ends: rows end in any order.
  std::function<void(std::size_t row, Continuation continuation)> on_end;
};

// Continues every prompt as continue_tokens() does, up to `at_once` of them in each call of the model; when a row ends,
// the next prompt takes its place, so rows begin in the order of the prompts. The tokens do not depend on `at_once`,
// except that a product of several rows may round otherwise than that of one. Collective as continue_tokens().
void continue_rows(LanguageModel& model, std::span<const std::vector<std::int32_t>> prompts, std::size_t at_once,
                   const Limits& limits, const RowCalls& calls);

}  // namespace titan::generate
