// The parts of tensors that a block of attention reads and writes, and its computation. Keys and values are one tensor
// [2, B, K, N, E] of the rank that has them.
#pragma once

#include <ATen/ATen.h>

#include "nn/ops/part_attention.h"
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

// Returns what the block's queries of `q` [B, H, N, E] get from its keys.
inline nn::AttentionPart attend_block(const AttentionBlock& block, const at::Tensor& q,
                                      const at::Tensor& keys_and_values) {
  return nn::attend_part(queries_of(q, block), keys_of(keys_and_values[0], block), keys_of(keys_and_values[1], block),
                         block.offset);
}

// Returns the block's summand of the gradient of its queries, and adds those of its keys and values to `grads`, shaped
// like `keys_and_values`. `result`: of all blocks merged.
inline at::Tensor attend_block_backward(const AttentionBlock& block, const at::Tensor& out_grad, const at::Tensor& q,
                                        const at::Tensor& keys_and_values, const nn::AttentionPart& result,
                                        const at::Tensor& grads) {
  const auto [of_q, of_k, of_v] = nn::attend_part_backward(
      queries_of(out_grad, block), queries_of(q, block), keys_of(keys_and_values[0], block),
      keys_of(keys_and_values[1], block), queries_of(result.out, block), queries_of(result.sums, block), block.offset);
  keys_of(grads[0], block).add_(of_k);
  keys_of(grads[1], block).add_(of_v);
  return of_q;
}

// Returns an empty [B, H, N, E] whose transpose [B, N, H, E] is contiguous, as the layers around attention need it.
inline at::Tensor empty_heads_like(const at::Tensor& heads) {
  return at::empty({heads.size(0), heads.size(2), heads.size(1), heads.size(3)}, heads.options()).transpose(1, 2);
}

}  // namespace titan::parallel
