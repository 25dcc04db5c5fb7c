// The layers that a transformer is made of. T: tokens of a row, B: rows, D: width.
#pragma once

#include "nn/module.h"
#include "nn/ops/fused_ops.h"

namespace titan::nn {

// y = x W^T, plus a bias if the layer has one. weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, bool has_bias = false);
  at::Tensor forward(const Tensors& inputs) override;  // [..., in] -> [..., out]
  // Returns `product` plus the bias, or `product` if the layer has none. For passes that compute x W^T themselves.
  at::Tensor add_bias(const at::Tensor& product) const;
  at::Tensor weight;
  at::Tensor bias;  // undefined if the layer has none
};

// Looks up rows of weight [num_embeddings, D].
class Embedding : public Module {
 public:
  Embedding(std::int64_t num_embeddings, std::int64_t dim);
  at::Tensor forward(const Tensors& inputs) override;  // int64 [B, T] -> [B, T, D]
  at::Tensor weight;
};

// x / rms(x) * weight over the last dim, computed in float32 and cast once (torch.nn.RMSNorm). weight [D].
class RMSNorm : public Module {
 public:
  RMSNorm(std::int64_t dim, double eps);
  at::Tensor forward(const Tensors& inputs) override;  // [..., D] -> [..., D]
  // Returns x + delta and the norm of that sum, equal to an addition and a call to the bit, in one pass if
  // add_rms_norm() has one. It is a call of the module: pre-hooks see both tensors. With post-hooks or forward wrappers
  // (a norm that fully_shard or activation checkpointing wraps by itself) it runs the addition and operator(), since
  // these expect one output.
  NormedSum forward_add(const at::Tensor& x, const at::Tensor& delta);
  at::Tensor weight;

 private:
  double eps_;
};

}  // namespace titan::nn
