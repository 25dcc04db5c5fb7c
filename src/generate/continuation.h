// Continues a sequence of tokens with a model, one token at a time.
#pragma once

#include <ATen/core/Tensor.h>

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

}  // namespace titan::generate
