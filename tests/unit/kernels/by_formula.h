// Operators beside their formulas: results and gradients of ATen's operators, in float64 or as they are, and how near to
// them a kernel has to be.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace titan::kernels {

using Tensors = std::vector<at::Tensor>;

// An output and the gradients of its inputs.
struct Results {
  at::Tensor out;
  Tensors grads;
};

// The results of ATen's operators on the inputs as they are, or on float64 copies.
using Formula = std::function<at::Tensor(const Tensors&)>;
inline Results by_autograd(const Formula& formula, const Tensors& inputs, const at::Tensor& out_grad) {
  Tensors leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().clone().set_requires_grad(true));
  const at::Tensor out = formula(leaves);
  return {out.detach(), torch::autograd::grad({out}, leaves, {out_grad.to(out.scalar_type())})};
}
inline Results in_float64(const Formula& formula, const Tensors& inputs, const at::Tensor& out_grad) {
  Tensors wide;
  for (const auto& input : inputs) wide.push_back(input.to(at::kDouble));
  return by_autograd(formula, wide, out_grad);
}

// Half a unit in the last place, in parts of the number.
inline double rounding(at::ScalarType dtype) { return std::pow(2.0, dtype == at::kFloat ? -24 : -8); }

// |found - expected| <= relative * |expected| + absolute * scale, everywhere. `scale`: of the terms that the result is
// made of, which may cancel.
inline void expect_near(const at::Tensor& found, const at::Tensor& expected, double relative, double absolute,
                        const at::Tensor& scale, const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const auto excess = (found.to(at::kDouble) - expected).abs() - relative * expected.abs() - absolute * scale;
  EXPECT_LE(excess.max().item<double>(), 0) << what;
}

// Of bfloat16: at most one element in a thousand differs from ATen's, and by one unit. Before they are rounded, results
// are equal to some 2^-21; those that lie as near to the middle of two bfloat16 numbers, 2^-8 apart, are one in 2^13.
// Where terms of the size of `scale` cancel, what float32 leaves of them may be anything.
inline void expect_same_bfloat16(const at::Tensor& found, const at::Tensor& aten, const std::string& what,
                                 const at::Tensor& scale = {}) {
  ASSERT_EQ(found.scalar_type(), at::kBFloat16);
  ASSERT_EQ(aten.scalar_type(), at::kBFloat16);
  // As integers, neighbours differ by 1 (signs are equal but around 0).
  const auto bits = [](const at::Tensor& tensor) { return tensor.contiguous().view(at::kShort).to(at::kInt); };
  auto apart = (bits(found) - bits(aten)).abs();
  if (scale.defined()) {
    const auto difference = (found.to(at::kDouble) - aten.to(at::kDouble)).abs();
    apart = apart.masked_fill(difference <= 16 * rounding(at::kFloat) * scale, 0);
  }
  const auto different = apart.ne(0).sum().item<std::int64_t>();
  EXPECT_LE(different, std::max<std::int64_t>(1, found.numel() / 1000)) << what << " of " << found.numel();
  EXPECT_LE(apart.max().item<int>(), 1) << what;
}

}  // namespace titan::kernels
