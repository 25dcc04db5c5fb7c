// A linear layer whose matmuls are in float8 (torchao's Float8Linear, torchao/float8/float8_linear.py).
#pragma once

#include <memory>

#include "nn/float8/gathered_float8.h"
#include "nn/layers.h"

namespace titan::nn {

// torchao's recipes. Values of forward are e4m3 in all of them.
enum class Float8Recipe {
  kTensorwise,  // one scale per tensor; gradients in e5m2
  kRowwise,     // one scale per row and column, powers of two; gradients in e4m3
  kRowwiseWithGwHp  // the same, but the weight has one scale for the input's gradient, and its own gradient is not in float8
};

struct Float8Options {
  Float8Recipe recipe = Float8Recipe::kTensorwise;
  bool emulate = false;  // multiplies in float32, on any device
  // Lets fully_shard gather the weight in float8 (nn/float8/gathered_float8.h). Only with kTensorwise: the other
  // recipes need scales along both dimensions of the weight.
  bool gathers_in_float8 = false;
};

// y = x W^T (+ bias), as Linear. x, W and the gradient of y are scaled and rounded to float8 for each matmul;
// parameters, results and gradients keep their dtypes. Both dimensions of the weight are multiples of 16.
class Float8Linear : public Linear {
 public:
  Float8Linear(std::int64_t in_features, std::int64_t out_features, bool has_bias, Float8Options options);
  at::Tensor forward(const Tensors& inputs) override;

 private:
  Float8Options options_;
  std::shared_ptr<GatheredFloat8> gathered_;  // null unless fully_shard may fill it
};

// The product alone: x [..., in], weight [out, in] -> [..., out], of x's dtype. An operator that checkpointed modules
// may keep, like apply_linear(). If `gathered` is defined, it is the weight, and `weight` only gets the gradient.
at::Tensor apply_float8_linear(const at::Tensor& x, const at::Tensor& weight, const Float8Options& options,
                               const Float8Matrix& gathered = {});

}  // namespace titan::nn
