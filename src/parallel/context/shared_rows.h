// The arithmetic and the communication of split_attention(), without autograd.
#pragma once

#include <memory>
#include <tuple>

#include "nn/ops/part_attention.h"
#include "parallel/context/split_attention.h"

namespace titan::parallel {

// One attention call over shared rows. Both methods are collective over the sharing's group. Shapes are those of
// split_attention().
class SharedRows {
 public:
  virtual ~SharedRows() = default;

  // Returns the output [B, H, N, E] and the logarithms of the softmax's sums, float32 [B, H, N].
  virtual nn::AttentionPart forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) = 0;
  // Returns the gradients of q, k and v.
  virtual std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const nn::AttentionPart& result) = 0;
};

// Returns the implementation of the sharing's rotation for queries like `q` [B, H, N, E] and documents of `lengths`.
std::unique_ptr<SharedRows> shared_rows(const RowSharing& sharing, const at::Tensor& q, const at::Tensor& lengths);

}  // namespace titan::parallel
