// Tests attention of a part of a row's queries and keys, for every instruction set of this machine, against the formula
// in float64 and against attention of the whole row.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/attention/attention_kernel.h"
#include "tests/unit/kernels/attention_formula.h"

namespace titan::kernels {
namespace {

using attention_formula::bfloat16_tolerance;
using attention_formula::expect_within;
using attention_formula::formula;
using attention_formula::Inputs;
using attention_formula::kernels_of_this_machine;
using attention_formula::make_inputs;
using attention_formula::Results;
using attention_formula::run;

struct Case {
  std::int64_t queries, keys, offset, heads, kv_heads, dim;
};
// Fewer and more queries than keys; a diagonal at, before and behind the edges of tiles (8, 16 and 32 rows, 16 and 32
// columns); every key seen by all, by some and by none; grouped queries.
const Case kCases[] = {
    {1, 1, 0, 1, 1, 16},      {5, 3, 1, 2, 1, 16},      {3, 40, 0, 2, 2, 16},    {40, 3, 0, 2, 1, 16},
    {33, 33, 32, 2, 2, 32},   {33, 17, 1, 2, 1, 32},    {32, 64, 32, 4, 2, 48},  {32, 64, 31, 2, 1, 48},
    {31, 65, 33, 2, 2, 64},   {70, 50, 7, 3, 1, 64},    {64, 48, 15, 2, 2, 16},  {64, 96, 17, 2, 1, 112},
    {100, 130, 30, 2, 2, 16}, {48, 200, 150, 4, 1, 16}, {16, 257, 5, 1, 1, 128}, {50, 128, 1000, 2, 1, 48}};

std::string text_of(const AttentionKernels& kernels, const Case& each) {
  return std::string(kernels.name) + ", " + std::to_string(each.queries) + " queries, " + std::to_string(each.keys) +
         " keys, offset " + std::to_string(each.offset);
}

double scale_of(const Case& each) { return 1 / std::sqrt(static_cast<double>(each.dim)); }

// Returns what kernels round, as a fraction of the terms' sizes. float32: sums of n = 257 products, by some sqrt(n) *
// 6e-8 = 1e-6, in a chain of three. The 16-bit types round what attention_test.cpp says.
double tolerance(const AttentionKernels& kernels, at::ScalarType dtype) {
  if (dtype == at::kFloat) return 3e-6;
  return dtype == at::kHalf ? 3 * std::pow(2.0, -12) : bfloat16_tolerance(kernels);
}

TEST(PartAttention, EqualsTheFormula) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const Case& each : kCases)
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Inputs inputs = make_inputs(dtype, each.queries, each.keys, each.heads, each.kv_heads, each.dim);
        ASSERT_TRUE(takes(*kernels, inputs.q, inputs.k, inputs.v));
        expect_within(run(*kernels, inputs, scale_of(each), each.offset), formula(inputs, scale_of(each), each.offset),
                      tolerance(*kernels, dtype), text_of(*kernels, each) + " in " + c10::toString(dtype));
      }
}

// The last queries of a row see all keys of the earlier ones. Here their tiles are those of the whole row, so that the
// arithmetic is the same.
TEST(PartAttention, OfARowsLastQueriesHasTheBitsOfTheWholeRow) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Inputs whole = make_inputs(dtype, 150, 150, 4, 2, 48);
      const Results expected = run(*kernels, whole, 0.2);
      const auto last = [](const at::Tensor& x) { return x.slice(2, 64); };
      const Results found = run(*kernels, {last(whole.q), whole.k, whole.v, last(whole.out_grad)}, 0.2, 64);
      EXPECT_TRUE(found.out.equal(last(expected.out))) << kernels->name << " " << dtype;
      EXPECT_TRUE(found.sums.equal(last(expected.sums))) << kernels->name << " " << dtype;
      EXPECT_TRUE(found.q_grad.equal(last(expected.q_grad))) << kernels->name << " " << dtype;
    }
}

// Keys [0, 70) and [70, 150) of 150 queries: the second part is seen by the queries from 70 on. The backward of each
// takes output and sums of all keys, in 16 bits the rounded ones, as the formula's tolerance says; the two parts of
// q's gradient are each rounded.
TEST(PartAttention, BackwardOfAPartTakesOutputAndSumsOfAllParts) {
  for (const auto* kernels : kernels_of_this_machine())
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const Inputs all = make_inputs(dtype, 150, 150, 4, 2, 48);
      const auto [out, sums] = attention_forward(*kernels, all.q, all.k, all.v, 0.2);
      const auto first = [](const at::Tensor& x) { return x.narrow(2, 0, 70); };
      const auto last = [](const at::Tensor& x) { return x.narrow(2, 70, 80); };
      const auto [q1, k1, v1] =
          attention_backward(*kernels, all.out_grad, all.q, first(all.k), first(all.v), out, sums, 0.2, 0);
      const auto [q2, k2, v2] = attention_backward(*kernels, last(all.out_grad), last(all.q), last(all.k), last(all.v),
                                                   last(out), last(sums), 0.2, 0);
      at::Tensor q = q1.to(at::kFloat);
      last(q).add_(q2);
      expect_within({out, sums, q, at::cat({k1, k2}, 2), at::cat({v1, v2}, 2)}, formula(all, 0.2),
                    tolerance(*kernels, dtype), std::string(kernels->name) + " " + c10::toString(dtype));
    }
}

TEST(PartAttention, WhatIsNoNumberSpreadsToTheQueriesThatSeeIt) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine()) {
      const Inputs inputs = make_inputs(dtype, 40, 70, 1, 1, 16);
      inputs.k.select(2, 40).fill_(std::numeric_limits<float>::quiet_NaN());
      const at::Tensor bad = std::get<0>(attention_forward(*kernels, inputs.q, inputs.k, inputs.v, 0.25, 25)).isnan();
      EXPECT_FALSE(bad.slice(2, 0, 15).any().item<bool>()) << kernels->name;
      EXPECT_TRUE(bad.slice(2, 15).all().item<bool>()) << kernels->name;
    }
}

TEST(PartAttention, RefusesAQueryThatSeesNoKey) {
  const Inputs inputs = make_inputs(at::kFloat, 4, 4, 1, 1, 16);
  EXPECT_THROW(attention_forward(best_attention(), inputs.q, inputs.k, inputs.v, 1, -1), InternalError);
}

}  // namespace
}  // namespace titan::kernels
