// Compares operators with their formulas: results and gradients of ATen's operators, in float64 or in the inputs'
// dtype, and the tolerances for a kernel.
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

// Returns the results of ATen's operators on the inputs; in_float64() takes float64 copies of them.
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

// Half a unit in the last place, relative to the number.
inline double rounding(at::ScalarType dtype) { return std::pow(2.0, dtype == at::kFloat ? -24 : -8); }

// Expects |found - expected| <= relative * |expected| + absolute * scale everywhere. `scale` is the size of the terms
// that make up the result, which may cancel.
inline void expect_near(const at::Tensor& found, const at::Tensor& expected, double relative, double absolute,
                        const at::Tensor& scale, const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const auto excess = (found.to(at::kDouble) - expected).abs() - relative * expected.abs() - absolute * scale;
  EXPECT_LE(excess.max().item<double>(), 0) << what;
}

// Expects at most one bfloat16 element in a thousand to differ from ATen's, by one unit. Before rounding, results
// agree to about 2^-21; one in 2^13 is that close to the middle of two bfloat16 numbers, 2^-8 apart. Where terms of
// the size of `scale` cancel, the remainder in float32 may be anything.
inline void expect_same_bfloat16(const at::Tensor& found, const at::Tensor& aten, const std::string& what,
                                 const at::Tensor& scale = {}) {
  ASSERT_EQ(found.scalar_type(), at::kBFloat16);
  ASSERT_EQ(aten.scalar_type(), at::kBFloat16);
  // As integers, neighbors differ by 1 (signs are equal except around 0).
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
