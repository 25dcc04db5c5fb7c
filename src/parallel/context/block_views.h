// The parts of tensors that a block of attention reads and writes.
#pragma once

#include <ATen/ATen.h>

#include "parallel/context/attention_blocks.h"

namespace titan::parallel {

// Returns the block's part of a tensor [B, H, N, ...] of the rank with the queries.
inline at::Tensor queries_of(const at::Tensor& tensor, const AttentionBlock& block) {
  return tensor.narrow(0, block.first_row, block.rows).narrow(2, block.first_query, block.queries);
}

// Returns the block's part of a tensor [B, K, N, E] of the rank with the keys.
inline at::Tensor keys_of(const at::Tensor& tensor, const AttentionBlock& block) {
  return tensor.narrow(0, block.first_row, block.rows).narrow(2, block.first_key, block.keys);
}

// Returns an empty [B, H, N, E] whose transpose [B, N, H, E] is contiguous, as the layers around attention need it.
inline at::Tensor empty_heads_like(const at::Tensor& heads) {
  return at::empty({heads.size(0), heads.size(2), heads.size(1), heads.size(3)}, heads.options()).transpose(1, 2);
}

}  // namespace titan::parallel
