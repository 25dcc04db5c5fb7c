// Keys and values of the tokens that a model has seen, so that one more token costs the work of one token. B rows, T
// tokens per call, H query heads, K key/value heads, E head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace titan::generate {

class KvCache {
 public:
  // Holds up to `capacity` tokens per row. A layer's memory is allocated when it first stores.
  explicit KvCache(std::int64_t capacity) : capacity_(capacity) {}

  // Number of tokens per row from finished calls.
  std::int64_t size() const { return size_; }

  // Stores k and v [B, K, T, E] of the current call's tokens, in the layer's own dtype and on its device. Throws
  // InternalError beyond the capacity.
  void store(std::size_t layer, const at::Tensor& k, const at::Tensor& v);
  // Attention of one more token per row, q [B, H, 1, E], over all stored and visible keys, its own included -> [B, H,
  // 1, E]. Scaled by 1 / sqrt(E).
  at::Tensor attend(std::size_t layer, const at::Tensor& q) const;

  // Call after the last layer: counts the call's tokens as seen. Tokens before `first_visible` are hidden from later
  // tokens; 0 hides none.
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

}  // namespace titan::generate
