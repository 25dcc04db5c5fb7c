#include "generate/kv_cache.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/ops/fused_attention.h"

namespace titan::generate {
void KvCache::store(std::size_t layer, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t count = k.size(2);
  TITAN_CHECK(size_ + count <= capacity_, "the cache has room for " + std::to_string(capacity_) + " tokens, not for " +
                                              std::to_string(size_ + count));
  if (layers_.size() <= layer) layers_.resize(layer + 1);
  Layer& own = layers_[layer];
  if (!own.keys.defined()) {
    own.keys = at::empty({k.size(0), k.size(1), capacity_, k.size(3)}, k.options());
    own.values = at::empty({v.size(0), v.size(1), capacity_, v.size(3)}, v.options());
  }
  own.keys.narrow(2, size_, count).copy_(k);
  own.values.narrow(2, size_, count).copy_(v);
}

at::Tensor KvCache::attend(std::size_t layer, const at::Tensor& q) const {
  TITAN_CHECK(q.size(2) == 1, "a cache takes several tokens in its first call only");
  const Layer& own = layers_.at(layer);
  const nn::AttentionWithoutPlans any_length(q.device());  // each token has a new one
  const auto visible = [&](const at::Tensor& stored) {
    return stored.narrow(2, first_visible_, size_ + 1 - first_visible_);
  };
  // Treats the query heads that share a key head as the rows of one attention, so that keys are not repeated for each.
  const auto grouped = q.view({q.size(0), own.keys.size(1), -1, q.size(3)});  // [B, K, H / K, E]
  return at::scaled_dot_product_attention(grouped, visible(own.keys), visible(own.values)).reshape(q.sizes());
}

void KvCache::finish_call(std::int64_t num_tokens, std::int64_t first_visible) {
  size_ += num_tokens;
  first_visible_ = first_visible;
}

}  // namespace titan::generate
