// The fused operators of GPUs, computed by the host in their order (kernels/device/host_team.h), against the formulas in
// float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/fused_ops.h"
#include "tests/unit/kernels/by_formula.h"

namespace titan::device {
namespace {

using kernels::expect_near;
using kernels::expect_same_bfloat16;
using kernels::in_float64;
using kernels::Results;
using kernels::rounding;
using kernels::Tensors;

constexpr double kEps = 1e-5;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

const DeviceFusedOps& ops() {
  static const DeviceFusedOps made(c10::DeviceType::CPU, host_launches());
  return made;
}

at::Tensor randn(at::IntArrayRef sizes, at::ScalarType dtype, double scale = 1) {
  return (at::randn(sizes, at::kFloat) * scale).to(dtype);
}

// Fewer packs than a team has lanes, as many, more, and no multiple; fewer rows than teams, and more.
struct Matrix {
  std::int64_t rows, dim;
};
const Matrix kMatrices[] = {{1, 8}, {7, 24}, {3, 2048}, {5, 4096 + 64}, {513, 64}, {1100, 256}};

std::string name_of(Matrix matrix) { return std::to_string(matrix.rows) + " x " + std::to_string(matrix.dim); }

at::Tensor rms_norm_formula(const Tensors& inputs) {
  return inputs[0] * at::rsqrt(inputs[0].square().mean(-1, true) + kEps) * inputs[1];
}

// As for the kernels of processors (fused_ops_test.cpp), whose sums are as long. The weight's gradient is a sum of at most
// 512 teams one after the other: half a unit each, as likely up as down, which is 11.
TEST(DeviceRmsNorm, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Matrix matrix : kMatrices) {
      at::manual_seed(matrix.rows + matrix.dim);
      const auto x = randn({matrix.rows, matrix.dim}, dtype, 3), weight = randn({matrix.dim}, dtype, 0.3) + 1;
      const auto out_grad = randn({matrix.rows, matrix.dim}, dtype);
      ASSERT_TRUE(ops().takes_rms_norm(x, weight)) << name_of(matrix);
      const auto [out, rrms] = ops().rms_norm_forward(x, weight, kEps);
      const auto [x_grad, weight_grad] = ops().rms_norm_backward(out_grad, x, weight, rrms, {});
      const Results expected = in_float64(rms_norm_formula, {x, weight}, out_grad);
      const double unit = rounding(at::kFloat), last = dtype == at::kFloat ? 0 : rounding(dtype) * 1.001;
      const auto wide = x.to(at::kDouble), scale = at::rsqrt(wide.square().mean(-1, true) + kEps);
      const auto pushes = (out_grad.to(at::kDouble) * weight.to(at::kDouble)).abs();
      const auto terms = pushes * scale + (pushes * wide.abs()).mean(-1, true) * scale.pow(3) * wide.abs();
      expect_near(out, expected.out, last + 8 * unit, 0, at::zeros_like(wide), name_of(matrix) + " out");
      expect_near(x_grad, expected.grads[0], last, 16 * unit, terms, name_of(matrix) + " x");
      expect_near(weight_grad, expected.grads[1], last, 16 * unit,
                  (out_grad.to(at::kDouble) * wide * scale).abs().sum(0), name_of(matrix) + " weight");
    }
}

TEST(DeviceRmsNorm, OfASumIsTheTwoOperatorsToTheBit) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Matrix matrix : kMatrices) {
      at::manual_seed(matrix.rows + matrix.dim);
      const auto make = [&] { return randn({matrix.rows, matrix.dim}, dtype); };
      const auto x = make(), delta = make(), out_grad = make(), more = make();
      const auto weight = randn({matrix.dim}, dtype, 0.3) + 1;
      ASSERT_TRUE(ops().takes_add_rms_norm(x, delta, weight));
      const auto [sum, out, rrms] = ops().add_rms_norm_forward(x, delta, weight, kEps);
      const auto [x_grad, weight_grad] = ops().rms_norm_backward(out_grad, sum, weight, rrms, more);
      const auto plain = x + delta;
      const auto [plain_out, plain_rrms] = ops().rms_norm_forward(plain, weight, kEps);
      const auto [plain_x, plain_weight] = ops().rms_norm_backward(out_grad, plain, weight, plain_rrms, {});
      EXPECT_TRUE(sum.equal(plain)) << name_of(matrix);
      EXPECT_TRUE(out.equal(plain_out)) << name_of(matrix);
      EXPECT_TRUE(x_grad.equal(more + plain_x)) << name_of(matrix);
      EXPECT_TRUE(weight_grad.equal(plain_weight)) << name_of(matrix);
    }
}

TEST(DeviceRmsNorm, WhatIsNoNumberStaysInItsRow) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const float bad : {kNan, kInfinity}) {
      const auto x = randn({7, 16}, dtype), weight = at::ones({16}, dtype), out_grad = randn({7, 16}, dtype);
      x[3][15].fill_(bad);
      const auto [out, rrms] = ops().rms_norm_forward(x, weight, kEps);
      const auto [x_grad, weight_grad] = ops().rms_norm_backward(out_grad, x, weight, rrms, {});
      EXPECT_TRUE(out[3].isnan().any().item<bool>());
      EXPECT_TRUE(x_grad[3].isnan().any().item<bool>());
      EXPECT_FALSE(out[4].isnan().any().item<bool>());
      EXPECT_FALSE(x_grad[4].isnan().any().item<bool>());
      EXPECT_TRUE(weight_grad.isnan().any().item<bool>());
    }
}

at::Tensor make_factors(std::int64_t length, std::int64_t head_dim) {
  const auto angles = at::randn({length, head_dim / 2}, at::kFloat) * 10;
  return at::polar(at::ones_like(angles), angles);
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& factors) {
  const auto pairs = at::view_as_complex(x.reshape({x.size(0), x.size(1), x.size(2), -1, 2}));
  return at::view_as_real(pairs * factors.slice(0, 0, x.size(1)).unsqueeze(1)).flatten(3);
}

// Two products and a sum: 3 roundings of half a unit, of terms that may cancel.
TEST(DeviceRotation, EqualsTheFormulaAtAnyStrides) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::int64_t head_dim : {8, 16, 48, 128}) {
      at::manual_seed(head_dim);
      const auto factors = make_factors(13, head_dim);
      const auto whole = randn({3, 11, 9, head_dim}, dtype), odd = randn({3, 11, 9, head_dim + 1}, dtype);
      const auto heads_first = randn({3, 5, 11, head_dim}, dtype).transpose(1, 2);
      for (const auto& x : {whole, whole.slice(2, 4, 8), heads_first, odd.slice(3, 1)})
        for (const bool conjugate : {false, true}) {
          ASSERT_TRUE(ops().takes_rotation(x, factors));
          const auto wide = factors.to(at::kComplexDouble);
          const auto expected = rotated(x.to(at::kDouble).contiguous(), conjugate ? wide.conj() : wide);
          const auto scale =
              at::view_as_complex(x.to(at::kDouble).contiguous().unflatten(3, {-1, 2})).abs().repeat_interleave(2, 3);
          const auto found = ops().rotate(x, factors, conjugate);
          EXPECT_TRUE(found.is_contiguous());
          expect_near(found, expected, dtype == at::kFloat ? 0 : rounding(dtype) * 1.001, 3 * rounding(at::kFloat),
                      scale, "head_dim " + std::to_string(head_dim));
        }
    }
}

at::Tensor aten_swiglu(const Tensors& inputs) { return at::silu(inputs[0]) * inputs[1]; }

// See FusedSwiglu.EqualsTheFormula for the bounds.
TEST(DeviceSwiglu, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Matrix matrix : kMatrices) {
      at::manual_seed(matrix.rows + matrix.dim);
      const auto make = [&](double scale) { return randn({matrix.rows, matrix.dim}, dtype, scale); };
      const auto gate = make(6), up = make(1), out_grad = make(1);
      ASSERT_TRUE(ops().takes_swiglu(gate, up));
      const auto out = ops().swiglu_forward(gate, up);
      const auto [gate_grad, up_grad] = ops().swiglu_backward(out_grad, gate, up);
      const Results expected = in_float64(aten_swiglu, {gate, up}, out_grad);
      const double unit = rounding(at::kFloat), relative = dtype == at::kFloat ? 9 * unit : 2.01 * rounding(dtype);
      const auto x = gate.to(at::kDouble), s = at::sigmoid(x), none = at::zeros_like(x);
      const auto terms = (out_grad.to(at::kDouble) * up.to(at::kDouble)).abs() * s * (1 + x.abs() * (1 + s));
      expect_near(out, expected.out, relative, 0, none, name_of(matrix) + " out");
      expect_near(gate_grad, expected.grads[0], relative, 9 * unit, terms, name_of(matrix) + " gate");
      expect_near(up_grad, expected.grads[1], relative, 0, none, name_of(matrix) + " up");
      if (dtype != at::kBFloat16) continue;
      const Results aten = kernels::by_autograd(aten_swiglu, {gate, up}, out_grad);
      expect_same_bfloat16(out, aten.out, name_of(matrix) + " out");
      expect_same_bfloat16(gate_grad, aten.grads[0], name_of(matrix) + " gate");
      expect_same_bfloat16(up_grad, aten.grads[1], name_of(matrix) + " up");
    }
}

TEST(DeviceSwiglu, AgreesAtTheEnds) {
  const std::vector<float> ends = {-kInfinity, -3e38F, -200, -89, -88, -87,   -20,       -0.0F,
                                   0,          20,     87,   88,  200, 3e38F, kInfinity, kNan};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto gate = at::tensor(ends).to(dtype), ones = at::ones_like(gate);
    const auto [gate_grad, up_grad] = ops().swiglu_backward(ones, gate, ones);
    const Results aten = kernels::by_autograd(aten_swiglu, {gate, ones}, ones);
    const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
      return at::allclose(a, b, rounding(dtype) * 8, 1e-34, /*equal_nan=*/true);
    };
    EXPECT_TRUE(same(ops().swiglu_forward(gate, ones), aten.out));
    EXPECT_TRUE(same(gate_grad, aten.grads[0])) << gate_grad << aten.grads[0];
    EXPECT_TRUE(same(up_grad, aten.grads[1]));
  }
}

// What no pack of 16 bytes fits is left to ATen's operators.
TEST(DeviceFusedOps, RefuseWhatIsNotInPacks) {
  const auto x = randn({4, 12}, at::kBFloat16), weight = randn({12}, at::kBFloat16);
  EXPECT_FALSE(ops().takes_rms_norm(x, weight));
  EXPECT_FALSE(ops().takes_rms_norm(randn({2, 16384 + 8}, at::kBFloat16), randn({16384 + 8}, at::kBFloat16)));
  EXPECT_FALSE(ops().takes_rms_norm(randn({4, 16}, at::kHalf), randn({16}, at::kHalf)));
  const auto shifted = randn({65}, at::kFloat).slice(0, 1).view({4, 16});
  EXPECT_FALSE(ops().takes_rms_norm(shifted, randn({16}, at::kFloat)));
  EXPECT_FALSE(ops().takes_swiglu(shifted, shifted));
  EXPECT_FALSE(ops().takes_rotation(randn({1, 2, 2, 12}, at::kBFloat16), make_factors(2, 12)));
}

}  // namespace
}  // namespace titan::device
