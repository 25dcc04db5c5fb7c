#include "generate/continuation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "generate/cached_model.h"

namespace titan::generate {

Continuation continue_tokens(LanguageModel& model, std::span<const std::int32_t> prompt, const Limits& limits,
                             const Pick& pick, const std::function<bool(std::int32_t)>& on_token) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  TITAN_CHECK(
      length > 0 && length < limits.context,
      "a prompt of " + std::to_string(length) + " tokens does not fit a context of " + std::to_string(limits.context));
  const at::NoGradGuard no_grad;
  const std::int64_t room = std::min(limits.max_tokens, limits.context - length);
  CachedModel cached(model, length + room);
  Continuation out;
  std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
  for (std::int64_t i = 0; i < room; ++i) {
    const std::int64_t id = pick(cached.logits(tokens));
    out.ids.push_back(static_cast<std::int32_t>(id));
    const bool goes_on = !on_token || on_token(out.ids.back());
    const bool is_stop = std::ranges::count(limits.stop_ids, id) > 0;
    if (is_stop || !goes_on) {
      out.end = is_stop ? End::kStopToken : End::kCaller;
      return out;
    }
    tokens = {id};
  }
  out.end = room < limits.max_tokens ? End::kContext : End::kMaxTokens;
  return out;
}

}  // namespace titan::generate
