// RMSNorm, rotary embedding and SwiGLU built from ATen's operators, for the tests of the fused kernels.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/unit/kernels/by_formula.h"

namespace titan::kernels {

constexpr double kEps = 1e-5;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

struct Matrix {
  std::int64_t rows, dim;
};

// RMSNorm of x with the weight.
inline at::Tensor rms_norm_formula(const Tensors& inputs) {
  return inputs[0] * at::rsqrt(inputs[0].square().mean(-1, true) + kEps) * inputs[1];
}

// Returns the added sizes of the two terms whose difference is a gradient of x.
inline at::Tensor x_grad_terms(const Tensors& inputs, const at::Tensor& out_grad) {
  const at::Tensor x = inputs[0].to(at::kDouble), pushes = (out_grad.to(at::kDouble) * inputs[1].to(at::kDouble)).abs();
  const at::Tensor rrms = at::rsqrt(x.square().mean(-1, true) + kEps);
  return pushes * rrms + (pushes * x.abs()).mean(-1, true) * rrms.pow(3) * x.abs();
}

// Returns the added sizes of the terms of the weight's gradient.
inline at::Tensor weight_grad_terms(const Tensors& inputs, const at::Tensor& out_grad) {
  const at::Tensor x = inputs[0].to(at::kDouble);
  return (out_grad.to(at::kDouble) * x * at::rsqrt(x.square().mean(-1, true) + kEps)).abs().sum(0);
}

// Returns random rotations as complex numbers.
inline at::Tensor make_factors(std::int64_t length, std::int64_t head_dim) {
  const auto angles = at::randn({length, head_dim / 2}, at::kFloat) * 10;
  return at::polar(at::ones_like(angles), angles);
}

inline at::Tensor rotated(const at::Tensor& x, const at::Tensor& factors) {
  const auto pairs = at::view_as_complex(x.reshape({x.size(0), x.size(1), x.size(2), -1, 2}));
  return at::view_as_real(pairs * factors.slice(0, 0, x.size(1)).unsqueeze(1)).flatten(3);
}

// The same for pairs of elements half a head apart.
inline at::Tensor halves_rotated(const at::Tensor& x, const at::Tensor& factors) {
  const auto table = at::view_as_real(factors.resolve_conj().slice(0, 0, x.size(1)).unsqueeze(1)).to(x.scalar_type());
  const auto cos = table.select(-1, 0), sin = table.select(-1, 1);
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

// Factors, two products and their sum are rounded: by half a unit each, of terms that may cancel.
inline void expect_halves_rotated(const at::Tensor& found, const at::Tensor& x, const at::Tensor& factors,
                                  bool conjugate, const std::string& what) {
  const auto wide = factors.to(at::kComplexDouble), by = conjugate ? wide.conj() : wide;
  const auto expected = halves_rotated(x.to(at::kDouble), by);
  const auto halves = x.to(at::kDouble).contiguous().chunk(2, -1);
  const auto length = at::hypot(halves[0], halves[1]);
  expect_near(found, expected, 0, 4 * rounding(x.scalar_type()), at::cat({length, length}, -1), what);
  if (x.scalar_type() != at::kBFloat16) return;
  const auto aten = halves_rotated(x, conjugate ? factors.conj() : factors);
  expect_same_bfloat16(found, aten, what);
}

// SwiGLU of gate and up.
inline at::Tensor aten_swiglu(const Tensors& inputs) { return at::silu(inputs[0]) * inputs[1]; }

// Extreme inputs: ATen's results there are -0, below the smallest normal number, infinite or NaN.
inline const std::vector<float> kEndsOfSwiglu = {-kInfinity, -3e38F, -200, -89, -88, -87,   -20,       -0.0F,
                                                 0,          20,     87,   88,  200, 3e38F, kInfinity, kNan};

// The exponential is right to 2 units, 4 of `rounding`; the sum, the quotient and three products add half a unit
// each: 9. Where sigmoid * (1 + x * (1 - sigmoid)) cancels, the bound holds for its terms. In bfloat16 the factor
// that is rounded first adds half a bfloat16 unit.
inline void expect_swiglu_of_formula(const Results& found, const Tensors& inputs, const at::Tensor& out_grad,
                                     const std::string& what) {
  const auto dtype = inputs[0].scalar_type();
  const Results expected = in_float64(aten_swiglu, inputs, out_grad);
  const double unit = rounding(at::kFloat), relative = dtype == at::kFloat ? 9 * unit : 2.01 * rounding(dtype);
  const at::Tensor x = inputs[0].to(at::kDouble), s = at::sigmoid(x), none = at::zeros_like(x);
  const at::Tensor terms = (out_grad.to(at::kDouble) * inputs[1].to(at::kDouble)).abs() * s * (1 + x.abs() * (1 + s));
  expect_near(found.out, expected.out, relative, 0, none, what + " out");
  expect_near(found.grads[0], expected.grads[0], relative, 9 * unit, terms, what + " gate");
  expect_near(found.grads[1], expected.grads[1], relative, 0, none, what + " up");
}

inline void expect_swiglu_of_aten(const Results& found, const Tensors& inputs, const at::Tensor& out_grad,
                                  const std::string& what) {
  const Results aten = by_autograd(aten_swiglu, inputs, out_grad);
  expect_same_bfloat16(found.out, aten.out, what + " out");
  expect_same_bfloat16(found.grads[0], aten.grads[0], what + " gate");
  expect_same_bfloat16(found.grads[1], aten.grads[1], what + " up");
}

}  // namespace titan::kernels
