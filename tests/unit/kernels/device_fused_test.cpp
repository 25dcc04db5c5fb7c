// Tests the fused operators of GPUs, computed by the host in the GPU's order (kernels/device/host_team.h), against
// the formulas in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/device/device_operators.h"
#include "kernels/device/host_team.h"
#include "tests/unit/kernels/fused_formulas.h"

namespace titan::device {
namespace {

using namespace kernels;

const DeviceOperators& ops() {
  static const DeviceOperators made(c10::DeviceType::CPU, host_launches());
  return made;
}

at::Tensor randn(at::IntArrayRef sizes, at::ScalarType dtype, double scale = 1) {
  return (at::randn(sizes, at::kFloat) * scale).to(dtype);
}

// Packs per row: fewer than a team's lanes, as many, more, and not a multiple. Rows: fewer than teams, and more.
const Matrix kMatrices[] = {{1, 8}, {7, 24}, {3, 2048}, {5, 4096 + 64}, {513, 64}, {1100, 256}, {70, 40}};

std::string name_of(Matrix matrix) { return std::to_string(matrix.rows) + " x " + std::to_string(matrix.dim); }

// Tolerances as for the CPU kernels (fused_ops_test.cpp), whose sums are as long. The sum over teams rounds a weight's
// gradient 20 times by half a unit, as likely up as down: this gives 4.5. The inverse root mean square adds its 8.
TEST(DeviceRmsNorm, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Matrix matrix : kMatrices) {
      at::manual_seed(matrix.rows + matrix.dim);
      const auto x = randn({matrix.rows, matrix.dim}, dtype, 3), weight = randn({matrix.dim}, dtype, 0.3) + 1;
      const auto out_grad = randn({matrix.rows, matrix.dim}, dtype);
      const auto [out, rrms] = ops().rms_norm(x, weight, kEps);
      const auto [x_grad, weight_grad] = ops().rms_norm_backward(out_grad, x, weight, rrms, {});
      const Results expected = in_float64(rms_norm_formula, {x, weight}, out_grad);
      const double unit = rounding(at::kFloat), last = dtype == at::kFloat ? 0 : rounding(dtype) * 1.001;
      const auto none = at::zeros_like(expected.out);
      expect_near(out, expected.out, last + 8 * unit, 0, none, name_of(matrix) + " out");
      expect_near(x_grad, expected.grads[0], last, 16 * unit, x_grad_terms({x, weight}, out_grad),
                  name_of(matrix) + " x");
      expect_near(weight_grad, expected.grads[1], last, 16 * unit, weight_grad_terms({x, weight}, out_grad),
                  name_of(matrix) + " weight");
    }
}

// Returns the weight's gradient of `columns` [teams, dim], from a team's memory full of NaN.
at::Tensor weight_grad_of(const at::Tensor& columns) {
  const std::int64_t teams = columns.size(0), dim = columns.size(1);
  const auto out = at::full({dim}, kNan);
  Pack<float> strips[kLanes];
  for (std::int64_t block = 0; block < blocks_of_slots(dim); ++block) {
    std::fill(strips, strips + kLanes, Pack<float>{kNan, kNan, kNan, kNan});
    sum_teams<float>(HostTeam(), columns.const_data_ptr<float>(), teams, dim, block, strips,
                     out.mutable_data_ptr<float>());
  }
  return out;
}

// Teams: fewer than strips, as many, more, and not a multiple. Dims: parts of a block of lanes, one, and several.
TEST(DeviceRmsNorm, AddsTeamsInStripsAndStripsInPairsToTheBit) {
  for (const std::int64_t teams : {1, 2, 31, 32, 33, 500, 512})
    for (const std::int64_t dim : {4, 24, 32, 40, 4096 + 64}) {
      at::manual_seed(teams + dim);
      const auto columns = at::randn({teams, dim});
      std::vector<at::Tensor> strips;
      for (std::int64_t strip = 0; strip < 32; ++strip) {
        strips.push_back(at::zeros({dim}));
        for (std::int64_t team = strip; team < teams; team += 32) strips.back().add_(columns[team]);
      }
      for (; strips.size() > 1; strips.resize(strips.size() / 2))
        for (std::size_t i = 0; i < strips.size() / 2; ++i) strips[i].add_(strips[i + strips.size() / 2]);
      // Slots are the first elements of all packs, then the second ones, and so on.
      const auto expected = strips[0].view({4, dim / 4}).t().flatten();
      EXPECT_TRUE(weight_grad_of(columns).equal(expected)) << teams << " teams, dim " << dim;
    }
}

// A sum of positive terms is off by half a unit per rounding, of which there are 15 + 5. One after the other, 1 would
// swallow all the other terms: 511 halves.
TEST(DeviceRmsNorm, RoundsASumOfTeamsTwentyTimesAtMost) {
  const double half = rounding(at::kFloat);
  const auto columns = at::full({512, 8}, half, at::kFloat);
  columns[0].fill_(1);
  const auto expected = at::full({8}, 1 + 511 * half, at::kDouble);
  expect_near(weight_grad_of(columns), expected, 20 * half, 0, at::zeros_like(expected), "the sum");
}

TEST(DeviceRmsNorm, OfASumIsTheTwoOperatorsToTheBit) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Matrix matrix : kMatrices) {
      at::manual_seed(matrix.rows + matrix.dim);
      const auto make = [&] { return randn({matrix.rows, matrix.dim}, dtype); };
      const auto x = make(), delta = make(), out_grad = make(), more = make();
      const auto weight = randn({matrix.dim}, dtype, 0.3) + 1;
      const auto [sum, out, rrms] = ops().add_rms_norm(x, delta, weight, kEps);
      const auto [x_grad, weight_grad] = ops().rms_norm_backward(out_grad, sum, weight, rrms, more);
      const auto plain = x + delta;
      const auto [plain_out, plain_rrms] = ops().rms_norm(plain, weight, kEps);
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
      const auto [out, rrms] = ops().rms_norm(x, weight, kEps);
      const auto [x_grad, weight_grad] = ops().rms_norm_backward(out_grad, x, weight, rrms, {});
      EXPECT_TRUE(out[3].isnan().any().item<bool>());
      EXPECT_TRUE(x_grad[3].isnan().any().item<bool>());
      EXPECT_FALSE(out[4].isnan().any().item<bool>());
      EXPECT_FALSE(x_grad[4].isnan().any().item<bool>());
      EXPECT_TRUE(weight_grad.isnan().any().item<bool>());
    }
}

// Returns heads [3, 11, _, head_dim]: without gaps, of a projection for more heads, heads first, and off alignment.
std::vector<at::Tensor> heads_of_any_strides(std::int64_t head_dim, at::ScalarType dtype) {
  const auto whole = randn({3, 11, 9, head_dim}, dtype), odd = randn({3, 11, 9, head_dim + 1}, dtype);
  return {whole, whole.slice(2, 4, 8), randn({3, 5, 11, head_dim}, dtype).transpose(1, 2), odd.slice(3, 1)};
}

// Two products and a sum: 3 roundings of half a unit, of terms that may cancel.
TEST(DeviceRotation, EqualsTheFormulaAtAnyStrides) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::int64_t head_dim : {8, 16, 48, 128}) {
      at::manual_seed(head_dim);
      const auto factors = make_factors(13, head_dim);
      for (const auto& x : heads_of_any_strides(head_dim, dtype))
        for (const bool conjugate : {false, true}) {
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

TEST(DeviceRotation, OfHalvesEqualsTheFormulaAtAnyStrides) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::int64_t head_dim : {16, 48, 128}) {
      at::manual_seed(head_dim);
      const auto factors = make_factors(13, head_dim);
      for (const auto& x : heads_of_any_strides(head_dim, dtype))
        for (const bool conjugate : {false, true}) {
          const auto found = ops().rotate_halves(x, factors, conjugate);
          EXPECT_TRUE(found.is_contiguous());
          expect_halves_rotated(found, x, factors, conjugate, "head_dim " + std::to_string(head_dim));
        }
    }
}

// Parts of a token, of several, of a row, of more than a row, and of all: [3, 11, 4, 16] is 8 packs per token.
TEST(DeviceRotation, InPartsIsTheWholeToTheBit) {
  const auto factors = make_factors(13, 16), x = randn({3, 11, 9, 16}, at::kBFloat16).slice(2, 4, 8);
  const auto* const of_x = static_cast<const BFloat16Bits*>(x.const_data_ptr());
  const auto* const by = static_cast<const float*>(factors.const_data_ptr());
  const Rotation shape{3, 11, 4, 16, x.stride(0), x.stride(1), x.stride(2)};
  const auto launch = host_launches().of_bfloat16;
  for (const auto& [most, parts] : {std::pair{8, 33}, {23, 18}, {87, 6}, {88, 3}, {175, 3}, {176, 2}, {264, 1}}) {
    const auto all = at::zeros({3, 11, 4, 16}, at::kBFloat16), halves = at::zeros_like(all);
    const auto rotate_parts = [&](const auto& rotate, const at::Tensor& out) {
      int found = 0;
      const auto rotate_part = [&](const Rotation& part, const auto* from, const float* by_part, auto* to) {
        ++found;
        EXPECT_LE(places_of_all<BFloat16Bits>(part).count, static_cast<unsigned>(most));
        rotate(part, from, by_part, false, to);
      };
      for_parts_of<BFloat16Bits>(shape, of_x, by, static_cast<BFloat16Bits*>(out.mutable_data_ptr()), rotate_part,
                                 most);
      EXPECT_EQ(found, parts) << most;
    };
    rotate_parts(launch.rotate, all);
    rotate_parts(launch.rotate_halves, halves);
    EXPECT_TRUE(all.equal(ops().rotate(x, factors, false))) << most;
    EXPECT_TRUE(halves.equal(ops().rotate_halves(x, factors, false))) << most;
  }
}

TEST(DeviceSwiglu, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Matrix matrix : kMatrices) {
      at::manual_seed(matrix.rows + matrix.dim);
      const auto make = [&](double scale) { return randn({matrix.rows, matrix.dim}, dtype, scale); };
      const auto gate = make(6), up = make(1), out_grad = make(1);
      const auto out = ops().swiglu(gate, up);
      const auto [gate_grad, up_grad] = ops().swiglu_backward(out_grad, gate, up);
      const Results found = {out, {gate_grad, up_grad}};
      expect_swiglu_of_formula(found, {gate, up}, out_grad, name_of(matrix));
      if (dtype == at::kBFloat16) expect_swiglu_of_aten(found, {gate, up}, out_grad, name_of(matrix));
    }
}

TEST(DeviceSwiglu, AgreesAtTheEnds) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto gate = at::tensor(kEndsOfSwiglu).to(dtype), ones = at::ones_like(gate);
    const auto [gate_grad, up_grad] = ops().swiglu_backward(ones, gate, ones);
    const Results aten = by_autograd(aten_swiglu, {gate, ones}, ones);
    const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
      return at::allclose(a, b, rounding(dtype) * 8, 1e-34, /*equal_nan=*/true);
    };
    EXPECT_TRUE(same(ops().swiglu(gate, ones), aten.out));
    EXPECT_TRUE(same(gate_grad, aten.grads[0])) << gate_grad << aten.grads[0];
    EXPECT_TRUE(same(up_grad, aten.grads[1]));
  }
}

// A GPU refuses to launch a kernel without blocks.
TEST(DeviceOperators, LaunchNothingForNoElements) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto none = at::empty({0, 16}, dtype), weight = at::ones({16}, dtype);
    EXPECT_FALSE(ops().swiglu(none, none).defined());
    EXPECT_FALSE(std::get<0>(ops().rms_norm(none, weight, kEps)).defined());
    EXPECT_FALSE(ops().rotate(at::empty({0, 2, 2, 16}, dtype), make_factors(2, 16), false).defined());
  }
}

// Tensors that 16-byte packs do not fit are left to ATen's operators.
TEST(DeviceOperators, RefuseWhatIsNotInPacks) {
  const auto x = randn({4, 12}, at::kBFloat16), weight = randn({12}, at::kBFloat16);
  const auto takes_rms_norm = [](const at::Tensor& rows, const at::Tensor& factors) {
    return std::get<0>(ops().rms_norm(rows, factors, kEps)).defined();
  };
  EXPECT_FALSE(takes_rms_norm(x, weight));
  EXPECT_FALSE(takes_rms_norm(randn({2, 16384 + 8}, at::kBFloat16), randn({16384 + 8}, at::kBFloat16)));
  EXPECT_FALSE(takes_rms_norm(randn({4, 16}, at::kHalf), randn({16}, at::kHalf)));
  const auto shifted = randn({65}, at::kFloat).slice(0, 1).view({4, 16});
  EXPECT_FALSE(takes_rms_norm(shifted, randn({16}, at::kFloat)));
  EXPECT_FALSE(ops().swiglu(shifted, shifted).defined());
  EXPECT_FALSE(ops().rotate_halves(randn({1, 2, 2, 8}, at::kBFloat16), make_factors(2, 8), false).defined());
  EXPECT_FALSE(ops().rotate(randn({1, 2, 2, 12}, at::kBFloat16), make_factors(2, 12), false).defined());
  // A token of 2^31 packs.
  const auto huge = randn({1, 1, 1, 16}, at::kBFloat16).expand({1, 1, std::int64_t{1} << 30, 16});
  EXPECT_FALSE(ops().rotate(huge, make_factors(1, 16), false).defined());
}

}  // namespace
}  // namespace titan::device
