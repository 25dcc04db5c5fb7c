// Tests every instruction set of this machine against the formula in float64, forward and backward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/attention/attention_kernel.h"
#include "tests/unit/kernels/attention_formula.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

using attention_formula::bfloat16_tolerance;
using attention_formula::formula;
using attention_formula::Inputs;
using attention_formula::kernels_of_this_machine;
using attention_formula::make_inputs;
using attention_formula::Results;
using attention_formula::run;

// Returns the largest difference, relative to the largest element or to 1.
double distance(const at::Tensor& found, const at::Tensor& expected) {
  EXPECT_EQ(found.sizes(), expected.sizes());
  return ((found.to(at::kDouble) - expected).abs().max() / expected.abs().max().clamp_min(1)).item<double>();
}

void expect_near(const Results& found, const Results& expected, double tolerance, const std::string& what) {
  EXPECT_LT(distance(found.out, expected.out), tolerance) << what;
  EXPECT_LT(distance(found.sums, expected.sums), 1e-6) << what;
  EXPECT_LT(distance(found.q_grad, expected.q_grad), tolerance) << what;
  EXPECT_LT(distance(found.k_grad, expected.k_grad), tolerance) << what;
  EXPECT_LT(distance(found.v_grad, expected.v_grad), tolerance) << what;
}

struct Case {
  std::int64_t length, heads, kv_heads, dim;
};
// Lengths around a tile's rows and columns, one row alone, grouped queries, the dims of published models.
const Case kCases[] = {{1, 1, 1, 16},   {7, 2, 2, 16},   {32, 2, 1, 32},  {33, 4, 2, 16},
                       {130, 3, 1, 48}, {100, 2, 2, 64}, {70, 2, 2, 112}, {257, 2, 1, 128}};

// float32: a sum of n = 257 products has a relative error of some sqrt(n) * 6e-8 = 1e-6; the formula chains three.
TEST(Attention, EqualsTheFormulaInFloat32) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const Case& each : kCases) {
      const Inputs inputs = make_inputs(at::kFloat, each.length, each.length, each.heads, each.kv_heads, each.dim);
      const double scale = 1 / std::sqrt(static_cast<double>(each.dim));
      ASSERT_TRUE(takes(*kernels, inputs.q, inputs.k, inputs.v));
      expect_near(run(*kernels, inputs, scale), formula(inputs, scale).values, 3e-6,
                  std::string(kernels->name) + " length " + std::to_string(each.length));
    }
}

TEST(Attention, EqualsTheFormulaInBFloat16) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const Case& each : kCases) {
      const Inputs inputs = make_inputs(at::kBFloat16, each.length, each.length, each.heads, each.kv_heads, each.dim);
      const double scale = 1 / std::sqrt(static_cast<double>(each.dim));
      expect_near(run(*kernels, inputs, scale), formula(inputs, scale).values, bfloat16_tolerance(*kernels),
                  std::string(kernels->name) + " length " + std::to_string(each.length));
    }
}

// float16: like bfloat16, but rounded to 11 bits.
TEST(Attention, EqualsTheFormulaInFloat16) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const Case& each : kCases) {
      const Inputs inputs = make_inputs(at::kHalf, each.length, each.length, each.heads, each.kv_heads, each.dim);
      const double scale = 1 / std::sqrt(static_cast<double>(each.dim));
      expect_near(run(*kernels, inputs, scale), formula(inputs, scale).values, 3 * std::pow(2.0, -12),
                  std::string(kernels->name) + " length " + std::to_string(each.length));
    }
}

// Scores of 1e4 are sums of 16 products that round by up to 2^-11 each: among a thousand scores they are off by at
// most 3e-3 (three times sqrt(16 / 3) * 2^-11), and weights by that fraction of themselves.
TEST(Attention, TakesLargeScores) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Inputs inputs = make_inputs(dtype, 40, 40, 1, 1, 16);
    inputs.q = inputs.q * 1000;
    for (const auto* kernels : kernels_of_this_machine())
      expect_near(run(*kernels, inputs, 0.25), formula(inputs, 0.25).values,
                  4e-3 + (dtype == at::kFloat ? 0 : bfloat16_tolerance(*kernels)), kernels->name);
  }
}

TEST(Attention, WhatIsNoNumberSpreadsToTheRowsThatSeeIt) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine()) {
      const Inputs inputs = make_inputs(dtype, 40, 40, 1, 1, 16);
      inputs.k.select(2, 20).fill_(std::numeric_limits<float>::quiet_NaN());
      const at::Tensor bad = std::get<0>(attention_forward(*kernels, inputs.q, inputs.k, inputs.v, 0.25)).isnan();
      EXPECT_FALSE(bad.slice(2, 0, 20).any().item<bool>()) << kernels->name;
      EXPECT_TRUE(bad.slice(2, 20).all().item<bool>()) << kernels->name;
    }
}

TEST(Attention, IsTheSameOnAnyNumberOfThreads) {
  const Inputs inputs = make_inputs(at::kBFloat16, 100, 100, 6, 3, 32);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = run(best_attention(), inputs, 0.2);
  at::set_num_threads(3);
  const Results three = run(best_attention(), inputs, 0.2);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.out.equal(three.out) && one.q_grad.equal(three.q_grad) && one.k_grad.equal(three.k_grad) &&
              one.v_grad.equal(three.v_grad));
}

// Queries that see all keys, from a cache with room for more. Inputs are exact; the result has float32's error, as
// above, and half a unit in its last place, at most 2^-8 (float16: 2^-11) of the number.
TEST(Attention, OfCachedKeysEqualsTheFormula) {
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kCachedAttention))
    for (const auto& [dtype, tolerance] : {std::pair(at::kFloat, 3e-6),
                                           {at::kBFloat16, 3e-6 + std::pow(2.0, -8)},
                                           {at::kHalf, 3e-6 + std::pow(2.0, -11)}})
      for (const auto& [queries, keys, dim] :
           {std::array<std::int64_t, 3>{1, 1, 16}, {1, 33, 64}, {4, 257, 128}, {3, 16, 48}}) {
        at::manual_seed(keys);
        const at::Tensor q = at::randn({2, 3, queries, dim}, dtype), room = at::randn({2, 3, 300, dim}, dtype);
        const at::Tensor k = room.narrow(2, 5, keys), v = room.narrow(2, 40, keys);
        const at::Tensor scores = at::matmul(q.to(at::kDouble), k.to(at::kDouble).transpose(2, 3)) * 0.25;
        ASSERT_TRUE(takes(*kernels, q, k, v));
        const auto [out, sums] = cached_attention(*kernels, q, k, v, 0.25);
        EXPECT_LT(distance(out, at::matmul(scores.softmax(-1), v.to(at::kDouble))), tolerance)
            << kernels->name << " " << dtype;
        EXPECT_LT(distance(sums, scores.logsumexp(-1)), 1e-6) << kernels->name << " " << dtype;
      }
}

// After install_attention(), ATen's operator uses our kernel for causal attention and its own for the rest.
TEST(Attention, StandsInForATensKernel) {
  const Inputs inputs = make_inputs(at::kFloat, 50, 50, 4, 4, 16);
  const auto causal = [&] { return at::scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, {}, 0.0, true); };
  const auto full = [&] { return at::scaled_dot_product_attention(inputs.q, inputs.k, inputs.v); };
  const at::Tensor aten_causal = causal(), aten_full = full();
  install_attention();
  const at::Tensor ours = std::get<0>(attention_forward(best_attention(), inputs.q, inputs.k, inputs.v, 0.25));
  EXPECT_TRUE(causal().equal(ours));
  EXPECT_LT(distance(ours, aten_causal.to(at::kDouble)), 3e-6);
  EXPECT_TRUE(full().equal(aten_full));  // more queries than the kernel for caches takes
  const auto few = inputs.q.narrow(2, 0, 1);
  const at::Tensor of_few = at::scaled_dot_product_attention(few, inputs.k, inputs.v);
  EXPECT_LT(distance(of_few, aten_full.narrow(2, 0, 1).to(at::kDouble)), 3e-6);
  // Through autograd as well.
  const at::Tensor q = inputs.q.detach().clone().set_requires_grad(true);
  at::scaled_dot_product_attention(q, inputs.k, inputs.v, {}, 0.0, true).backward(inputs.out_grad);
  EXPECT_LT(distance(q.grad(), formula(inputs, 0.25).values.q_grad), 3e-6);
}

}  // namespace
}  // namespace titan::kernels
