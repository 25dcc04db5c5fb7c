// Tests every instruction set of this machine against the formulas in float64 and against ATen's operators, forward and
// backward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/rows/fused_kernels.h"
#include "tests/unit/kernels/fused_formulas.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

std::vector<const FusedKernels*> kernels_of_this_machine() { return TITAN_KERNELS_OF_THIS_MACHINE(kFused); }

// RMSNorm

at::Tensor aten_rms_norm(const Tensors& inputs) { return at::rms_norm(inputs[0], inputs[1].sizes(), inputs[1], kEps); }
Results run_rms_norm(const FusedKernels& kernels, const Tensors& inputs, const at::Tensor& out_grad) {
  const auto [out, rrms] = rms_norm_forward(kernels, inputs[0], inputs[1], kEps);
  const auto [x, weight] = rms_norm_backward(kernels, out_grad, inputs[0], inputs[1], rrms);
  return {out, {x, weight}};
}

// One row, row counts that are not a multiple of the step, more than one block; dims around vectors.
const Matrix kMatrices[] = {{1, 256}, {7, 1}, {7, 13}, {64, 48}, {65, 100}, {300, 257}, {1024, 256}};

struct NormInputs {
  Tensors inputs;
  at::Tensor out_grad;
};
NormInputs norm_inputs(Matrix matrix, at::ScalarType dtype) {
  at::manual_seed(matrix.rows * 1000 + matrix.dim);
  const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes, at::kFloat); };
  return {{(make({matrix.rows, matrix.dim}) * 3).to(dtype), (make({matrix.dim}) * 0.3 + 1).to(dtype)},
          make({matrix.rows, matrix.dim}).to(dtype)};
}

// out: a sum of squares has no cancellation; its error is that of some dim / 16 additions of half a unit each, as
// likely up as down: 4 units for these dims, halved by the root, and three products.
// x_grad: the difference of two terms, each with such errors; the second also has the errors of a sum of dim
// products, whose terms are as large as their root mean square times dim.
// weight_grad: 64 rows in 16 steps and then pairs of blocks, of products with an error of some 6 units.
TEST(FusedRmsNorm, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine())
      for (const Matrix matrix : kMatrices) {
        const auto [inputs, out_grad] = norm_inputs(matrix, dtype);
        ASSERT_TRUE(takes_rms_norm(inputs[0], inputs[1]));
        const Results found = run_rms_norm(*kernels, inputs, out_grad);
        const Results expected = in_float64(rms_norm_formula, inputs, out_grad);
        const std::string what =
            std::string(kernels->name) + " rows " + std::to_string(matrix.rows) + " dim " + std::to_string(matrix.dim);
        const double unit = rounding(at::kFloat), last = dtype == at::kFloat ? 0 : rounding(dtype);
        expect_near(found.out, expected.out, last * 1.001 + 8 * unit, 0, at::zeros_like(expected.out), what + " out");
        expect_near(found.grads[0], expected.grads[0], last * 1.001, 16 * unit, x_grad_terms(inputs, out_grad),
                    what + " x");
        expect_near(found.grads[1], expected.grads[1], last * 1.001, 16 * unit, weight_grad_terms(inputs, out_grad),
                    what + " weight");
      }
}

TEST(FusedRmsNorm, IsATensInBFloat16) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const Matrix matrix : kMatrices) {
      const auto [inputs, out_grad] = norm_inputs(matrix, at::kBFloat16);
      const Results found = run_rms_norm(*kernels, inputs, out_grad);
      const Results aten = by_autograd(aten_rms_norm, inputs, out_grad);
      const std::string what = std::string(kernels->name) + " rows " + std::to_string(matrix.rows);
      expect_same_bfloat16(found.out, aten.out, what + " out");
      expect_same_bfloat16(found.grads[0], aten.grads[0], what + " x", x_grad_terms(inputs, out_grad));
      expect_same_bfloat16(found.grads[1], aten.grads[1], what + " weight",
                           (out_grad * inputs[0]).to(at::kDouble).abs().sum(0));
    }
}

// The weight's gradient is a sum over all rows: its error must not be larger than that of ATen's sum, which is split in
// parts as well.
TEST(FusedRmsNorm, SumsOverRowsAsWellAsATen) {
  const auto [inputs, out_grad] = norm_inputs({20000, 64}, at::kFloat);
  const auto exact = in_float64(rms_norm_formula, inputs, out_grad).grads[1];
  const auto error = [&](const at::Tensor& found) {
    return (found.to(at::kDouble) - exact).square().mean().sqrt().item<double>();
  };
  const double of_aten = error(by_autograd(aten_rms_norm, inputs, out_grad).grads[1]);
  for (const auto* kernels : kernels_of_this_machine())
    EXPECT_LE(error(run_rms_norm(*kernels, inputs, out_grad).grads[1]), 1.1 * of_aten) << kernels->name;
}

TEST(FusedRmsNorm, WhatIsNoNumberStaysInItsRow) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine())
      for (const float bad : {kNan, kInfinity}) {
        const auto [inputs, out_grad] = norm_inputs({7, 19}, dtype);
        inputs[0][3][18].fill_(bad);
        const Results found = run_rms_norm(*kernels, inputs, out_grad);
        const Results aten = by_autograd(aten_rms_norm, inputs, out_grad);
        EXPECT_TRUE(found.out.isnan().equal(aten.out.isnan())) << kernels->name << bad;
        EXPECT_TRUE(found.grads[0].isnan().equal(aten.grads[0].isnan())) << kernels->name << bad;
        EXPECT_TRUE(found.grads[1].isnan().equal(aten.grads[1].isnan())) << kernels->name << bad;
        EXPECT_TRUE(found.out[3].isnan().any().item<bool>());
        EXPECT_FALSE(found.out[4].isnan().any().item<bool>());
      }
}

// RMSNorm of a sum

struct NormedSum {
  at::Tensor sum, out, rrms, x_grad, weight_grad;
};
struct SumInputs {
  at::Tensor x, delta, weight, out_grad, sum_grad;
};
SumInputs sum_inputs(Matrix matrix, at::ScalarType dtype) {
  const auto [inputs, out_grad] = norm_inputs(matrix, dtype);
  const auto make = [&] { return at::randn({matrix.rows, matrix.dim}, at::kFloat).to(dtype); };
  return {inputs[0], make(), inputs[1], out_grad, make()};
}
NormedSum run_add_rms_norm(const FusedKernels& kernels, const SumInputs& in) {
  const auto [sum, out, rrms] = add_rms_norm_forward(kernels, in.x, in.delta, in.weight, kEps);
  const auto [x_grad, weight_grad] = rms_norm_backward(kernels, in.out_grad, sum, in.weight, rrms, in.sum_grad);
  return {sum, out, rrms, x_grad, weight_grad};
}
// Runs the two operators one after the other, with ATen's sums.
NormedSum run_add_and_rms_norm(const FusedKernels& kernels, const SumInputs& in) {
  const auto sum = in.x + in.delta;
  const auto [out, rrms] = rms_norm_forward(kernels, sum, in.weight, kEps);
  const auto [x_grad, weight_grad] = rms_norm_backward(kernels, in.out_grad, sum, in.weight, rrms);
  return {sum, out, rrms, in.sum_grad + x_grad, weight_grad};
}

TEST(FusedAddRmsNorm, IsTheTwoOperatorsToTheBit) {
  std::vector<Matrix> matrices(std::begin(kMatrices), std::end(kMatrices));
  // Dims around one vector and around four, which are summed at once, of each instruction set.
  for (const std::int64_t dim : {3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129}) matrices.push_back({6, dim});
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine())
      for (const Matrix matrix : matrices) {
        const SumInputs inputs = sum_inputs(matrix, dtype);
        ASSERT_TRUE(takes_add_rms_norm(inputs.x, inputs.delta, inputs.weight));
        const NormedSum found = run_add_rms_norm(*kernels, inputs), expected = run_add_and_rms_norm(*kernels, inputs);
        const std::string what =
            std::string(kernels->name) + " rows " + std::to_string(matrix.rows) + " dim " + std::to_string(matrix.dim);
        EXPECT_TRUE(found.sum.equal(expected.sum)) << what;
        EXPECT_TRUE(found.out.equal(expected.out)) << what;
        EXPECT_TRUE(found.rrms.equal(expected.rrms)) << what;
        EXPECT_TRUE(found.x_grad.equal(expected.x_grad)) << what;
        EXPECT_TRUE(found.weight_grad.equal(expected.weight_grad)) << what;
      }
}

TEST(FusedAddRmsNorm, WhatIsNoNumberStaysInItsRow) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine()) {
      const SumInputs inputs = sum_inputs({7, 19}, dtype);
      inputs.x[3][2].fill_(kInfinity);
      inputs.delta[3][2].fill_(-kInfinity);
      inputs.x[5][18].fill_(kNan);
      const NormedSum found = run_add_rms_norm(*kernels, inputs), expected = run_add_and_rms_norm(*kernels, inputs);
      for (const auto& [mine, theirs] : {std::pair(found.sum, expected.sum), std::pair(found.out, expected.out),
                                         std::pair(found.x_grad, expected.x_grad)}) {
        EXPECT_TRUE(mine.isnan().equal(theirs.isnan())) << kernels->name;
        EXPECT_TRUE(mine.nan_to_num(0).equal(theirs.nan_to_num(0))) << kernels->name;
      }
      EXPECT_EQ(found.sum.isnan().sum().item<int>(), 2) << kernels->name;
      EXPECT_EQ(found.out.isnan().sum().item<int>(), 2 * 19) << kernels->name;
    }
}

// Rotary embedding

at::Tensor aten_rotation(const at::Tensor& x, const at::Tensor& factors) {
  return rotated(x.to(at::kFloat), factors).to(x.scalar_type());
}

// Calls check(kernels, x, factors, conjugate, what) for every dtype, instruction set, width of a head and direction.
template <typename Check>
void for_each_rotation(const Check& check) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine())
      for (const std::int64_t head_dim : {2, 6, 16, 48, 64, 128}) {
        at::manual_seed(head_dim);
        const auto factors = make_factors(13, head_dim);
        const auto x = at::randn({3, 11, 5, head_dim}, at::kFloat).to(dtype);
        for (const bool conjugate : {false, true})
          check(*kernels, x, factors, conjugate, std::string(kernels->name) + " head_dim " + std::to_string(head_dim));
      }
}

// Two products and a sum: 3 roundings of half a unit, of terms that may cancel.
TEST(FusedRotation, EqualsTheFormulaAndATens) {
  for_each_rotation([](const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate,
                       const std::string& what) {
    const auto dtype = x.scalar_type();
    const auto wide = factors.to(at::kComplexDouble);
    const auto found = rotate(kernels, x, factors, conjugate);
    const auto expected = rotated(x.to(at::kDouble), conjugate ? wide.conj() : wide);
    const auto scale = at::view_as_complex(x.to(at::kDouble).unflatten(3, {-1, 2})).abs().repeat_interleave(2, 3);
    expect_near(found, expected, dtype == at::kFloat ? 0 : rounding(dtype) * 1.001, 3 * rounding(at::kFloat), scale,
                what);
    const auto table = (conjugate ? factors.conj() : factors).resolve_conj();
    if (dtype == at::kBFloat16) expect_same_bfloat16(found, aten_rotation(x, table), what);
  });
}

TEST(FusedRotation, OfHalvesEqualsTheFormulaAndATens) {
  for_each_rotation([](const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate,
                       const std::string& what) {
    expect_halves_rotated(rotate_halves(kernels, x, factors, conjugate), x, factors, conjugate, what);
  });
}

TEST(FusedRotation, TakesAnyStrides) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine()) {
      const auto factors = make_factors(9, 16);
      const auto wide = at::randn({2, 9, 12, 16}, at::kFloat).to(dtype);  // q, k and v of one projection
      const auto heads_first = at::randn({2, 4, 9, 16}, at::kFloat).to(dtype).transpose(1, 2);
      const auto last_strided = at::randn({2, 9, 16, 4}, at::kFloat).to(dtype).transpose(2, 3);
      const auto repeated = at::randn({1, 1, 1, 16}, at::kFloat).to(dtype).expand({2, 9, 4, 16});
      for (const auto& x : {wide.slice(2, 4, 8), heads_first, last_strided, repeated}) {
        const auto found = rotate(*kernels, x, factors, true);
        EXPECT_TRUE(found.is_contiguous());
        EXPECT_TRUE(found.equal(rotate(*kernels, x.contiguous(), factors, true))) << kernels->name << x.strides();
        EXPECT_TRUE(
            rotate_halves(*kernels, x, factors, true).equal(rotate_halves(*kernels, x.contiguous(), factors, true)))
            << kernels->name << x.strides();
      }
      EXPECT_TRUE(takes_rotation(heads_first, factors));
      EXPECT_FALSE(takes_rotation(wide.slice(3, 0, 8), factors));
      EXPECT_FALSE(takes_rotation(heads_first, factors.slice(0, 0, 8)));
    }
}

TEST(FusedRotation, WhatIsNoNumberStaysInItsPair) {
  for (const auto* kernels : kernels_of_this_machine()) {
    auto factors = make_factors(3, 10);
    const auto x = at::randn({1, 3, 2, 10}).to(at::kBFloat16);
    x[0][1][1][8].fill_(kNan);
    const auto bad = rotate(*kernels, x, factors, false).isnan();
    EXPECT_EQ(bad.sum().item<int>(), 2) << kernels->name;
    EXPECT_TRUE(bad[0][1][1].slice(0, 8).all().item<bool>()) << kernels->name;
    // A NaN with all bits set would become 0 if it were rounded like a number.
    at::view_as_real(factors).view(at::kInt)[2][0].fill_(-1);
    EXPECT_EQ(rotate(*kernels, x, factors, false).isnan().sum().item<int>(), 2 + 2 * 2) << kernels->name;
  }
}

// SwiGLU

Results run_swiglu(const FusedKernels& kernels, const Tensors& inputs, const at::Tensor& out_grad) {
  const auto [gate, up] = swiglu_backward(kernels, out_grad, inputs[0], inputs[1]);
  return {swiglu_forward(kernels, inputs[0], inputs[1]), {gate, up}};
}
NormInputs swiglu_inputs(Matrix matrix, at::ScalarType dtype) {
  at::manual_seed(matrix.rows * 1000 + matrix.dim);
  const auto make = [&](double scale) { return (at::randn({matrix.rows, matrix.dim}, at::kFloat) * scale).to(dtype); };
  return {{make(6), make(1)}, make(1)};
}

TEST(FusedSwiglu, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine())
      for (const Matrix matrix : kMatrices) {
        const auto [inputs, out_grad] = swiglu_inputs(matrix, dtype);
        ASSERT_TRUE(takes_swiglu(inputs[0], inputs[1]));
        expect_swiglu_of_formula(run_swiglu(*kernels, inputs, out_grad), inputs, out_grad,
                                 std::string(kernels->name) + " size " + std::to_string(inputs[0].numel()));
      }
}

TEST(FusedSwiglu, IsATensInBFloat16) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const Matrix matrix : kMatrices) {
      const auto [inputs, out_grad] = swiglu_inputs(matrix, at::kBFloat16);
      expect_swiglu_of_aten(run_swiglu(*kernels, inputs, out_grad), inputs, out_grad,
                            std::string(kernels->name) + " size " + std::to_string(inputs[0].numel()));
    }
}

TEST(FusedSwiglu, AgreesAtTheEnds) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine()) {
      const auto gate = at::tensor(kEndsOfSwiglu).to(dtype), ones = at::ones_like(gate);
      const Results found = run_swiglu(*kernels, {gate, ones}, ones);
      const Results aten = by_autograd(aten_swiglu, {gate, ones}, ones);
      const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
        return at::allclose(a, b, rounding(dtype) * 8, 1e-34, /*equal_nan=*/true);
      };
      EXPECT_TRUE(same(found.out, aten.out)) << kernels->name << found.out << aten.out;
      EXPECT_TRUE(same(found.grads[0], aten.grads[0])) << kernels->name << found.grads[0] << aten.grads[0];
      EXPECT_TRUE(same(found.grads[1], aten.grads[1])) << kernels->name << found.grads[1] << aten.grads[1];
    }
}

// All kernels

// Every bfloat16 times 1 is itself, and halfway cases round to even, as in ATen's conversion.
TEST(FusedKernels, RoundToBFloat16AsATen) {
  const auto all = at::arange(-32768, 32768, at::kInt).to(at::kShort).view(at::kBFloat16).reshape({1, 1, 256, 256});
  const auto one = at::polar(at::ones({1, 128}), at::zeros({1, 128}));
  // A product of two bfloat16 numbers is exact in float32, and often half-way.
  const auto doubled = at::complex(at::full({1, 128}, 1.0078125F), at::zeros({1, 128}));
  for (const auto* kernels : kernels_of_this_machine())
    for (const auto& factors : {one, doubled}) {
      const auto found = rotate(*kernels, all, factors, false);
      const auto partner = all.unflatten(3, {-1, 2}).flip(-1).flatten(3);  // times 0: NaN where it is not finite
      const auto expected =
          (all.to(at::kFloat) * at::real(factors)[0][0] + partner.to(at::kFloat) * 0).to(at::kBFloat16);
      EXPECT_TRUE(found.isnan().equal(expected.isnan())) << kernels->name;
      EXPECT_TRUE(found.nan_to_num(0).equal(expected.nan_to_num(0))) << kernels->name;
    }
}

TEST(FusedKernels, AreTheSameOnAnyNumberOfThreads) {
  const auto& kernels = best_fused_kernels();
  const auto [norm, norm_grad] = norm_inputs({1025, 255}, at::kBFloat16);
  const auto [glu, glu_grad] = swiglu_inputs({1025, 255}, at::kBFloat16);
  const SumInputs sum = sum_inputs({1025, 255}, at::kBFloat16);
  const auto factors = make_factors(257, 64);
  const auto x = at::randn({4, 257, 4, 64}).to(at::kBFloat16);
  const auto all = [&, &norm = norm, &norm_grad = norm_grad, &glu = glu, &glu_grad = glu_grad] {
    const Results a = run_rms_norm(kernels, norm, norm_grad), b = run_swiglu(kernels, glu, glu_grad);
    const NormedSum c = run_add_rms_norm(kernels, sum);
    return Tensors{a.out,
                   a.grads[0],
                   a.grads[1],
                   b.out,
                   b.grads[0],
                   b.grads[1],
                   c.sum,
                   c.out,
                   c.rrms,
                   c.x_grad,
                   c.weight_grad,
                   rotate(kernels, x, factors, false),
                   rotate_halves(kernels, x, factors, false)};
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = all();
  at::set_num_threads(3);
  const auto three = all();
  at::set_num_threads(threads);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i])) << i;
}

// Gradients arrive with the strides of the operators that follow.
TEST(FusedKernels, TakeGradientsOfAnyStrides) {
  const auto& kernels = best_fused_kernels();
  const auto [norm, norm_grad] = norm_inputs({65, 20}, at::kFloat);
  const auto [glu, glu_grad] = swiglu_inputs({65, 20}, at::kFloat);
  const auto strided = [](const at::Tensor& tensor) { return tensor.t().contiguous().t(); };
  const Results norm_found = run_rms_norm(kernels, norm, strided(norm_grad));
  const Results glu_found = run_swiglu(kernels, glu, strided(glu_grad));
  EXPECT_TRUE(norm_found.grads[0].equal(run_rms_norm(kernels, norm, norm_grad).grads[0]));
  EXPECT_TRUE(glu_found.grads[0].equal(run_swiglu(kernels, glu, glu_grad).grads[0]));
  SumInputs sum = sum_inputs({65, 20}, at::kFloat);
  const auto of_contiguous = run_add_rms_norm(kernels, sum);
  sum.out_grad = strided(sum.out_grad);
  sum.sum_grad = strided(sum.sum_grad);
  const auto of_strided = run_add_rms_norm(kernels, sum);
  EXPECT_TRUE(of_strided.x_grad.equal(of_contiguous.x_grad));
  EXPECT_TRUE(of_strided.weight_grad.equal(of_contiguous.weight_grad));
  EXPECT_FALSE(takes_add_rms_norm(strided(sum.x), sum.delta, sum.weight));
  EXPECT_FALSE(takes_add_rms_norm(sum.x, strided(sum.delta), sum.weight));
  EXPECT_FALSE(takes_add_rms_norm(sum.x, sum.delta.slice(0, 0, 1), sum.weight));
  EXPECT_FALSE(takes_add_rms_norm(sum.x, sum.delta.to(at::kBFloat16), sum.weight));
  EXPECT_FALSE(takes_swiglu(strided(glu[0]), glu[1]));
  EXPECT_FALSE(takes_rms_norm(strided(norm[0]), norm[1]));
  EXPECT_FALSE(takes_rms_norm(norm[0].to(at::kHalf), norm[1].to(at::kHalf)));
  EXPECT_FALSE(takes_rms_norm(norm[0].to(at::kBFloat16), norm[1]));
}

}  // namespace
}  // namespace titan::kernels
