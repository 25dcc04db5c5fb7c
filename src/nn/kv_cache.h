// The keys and values of the tokens that a model has seen, so that a further token costs the work of one token. B rows,
// T tokens of a call, H query heads, K key/value heads, E head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace titan::nn {

class KvCache {
 public:
  // Room for `capacity` tokens per row. Memory is taken when a layer stores for the first time.
  explicit KvCache(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t capacity() const { return capacity_; }
  // Tokens of the calls that are over.
  std::int64_t size() const { return size_; }

  // During a call of the model: k and v [B, K, T, E] of that call's tokens, in the layer's own dtype and on its device.
  // Throws InternalError beyond the capacity.
  void store(std::size_t layer, const at::Tensor& k, const at::Tensor& v);
  // Attention of one more token per row, q [B, H, 1, E], over everything that is stored and not hidden, its own key
  // included -> [B, H, 1, E]. Scaled by 1 / sqrt(E).
  at::Tensor attend(std::size_t layer, const at::Tensor& q) const;

  // After the last layer: the call's tokens count as seen. Tokens before `first_visible` are hidden from those that
  // follow; 0 hides none.
  void finish_call(std::int64_t num_tokens, std::int64_t first_visible);
  std::int64_t first_visible() const { return first_visible_; }

 private:
  struct Layer {
    at::Tensor keys, values;  // [B, K, capacity, E]
  };

  std::int64_t capacity_;
  std::int64_t size_ = 0;
  std::int64_t first_visible_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace titan::nn
