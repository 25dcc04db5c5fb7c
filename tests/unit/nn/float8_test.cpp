// Tests float8 matrices against rounding by hand, and the matmuls of a float8 linear layer against those in double.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "nn/float8/float8_linear.h"
#include "nn/float8/float8_matrix.h"

namespace titan::nn {
namespace {

constexpr auto kE4m3 = at::kFloat8_e4m3fn, kE5m2 = at::kFloat8_e5m2;

// Returns all finite values of a type, ascending; each only once.
std::vector<double> values_of(at::ScalarType dtype) {
  const auto bytes = at::arange(256, at::kInt).to(at::kByte).view(dtype).to(at::kDouble);
  std::vector<double> values;
  for (std::int64_t i = 0; i < 256; ++i)
    if (const double value = bytes[i].item<double>(); std::isfinite(value)) values.push_back(value);
  std::ranges::sort(values);
  values.erase(std::ranges::unique(values).begin(), values.end());
  return values;
}

// Returns the value of the type that is nearest; of two, the one with the even mantissa, whose neighbors are twice as
// far apart if one leaves every second value out.
double nearest(double x, const std::vector<double>& values) {
  const auto above = std::ranges::lower_bound(values, x);
  if (above == values.end()) return values.back();
  if (above == values.begin() || *above == x) return *above;
  const auto below = above - 1;
  if (x - *below != *above - x) return x - *below < *above - x ? *below : *above;
  const auto zero = std::ranges::lower_bound(values, 0.0);
  return (above - zero) % 2 == 0 ? *above : *below;
}

// Magnitudes over many powers of two, of both signs, with zeros.
at::Tensor spread(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  at::manual_seed(seed);
  const auto x = at::randn({rows, columns}) * at::exp2(at::randint(-12, 4, {rows, columns}, at::kFloat));
  return x.masked_fill(at::rand({rows, columns}) < 0.05, 0);
}

TEST(Float8Matrix, HoldsTheNearestValues) {
  for (const auto dtype : {kE4m3, kE5m2}) {
    const auto values = values_of(dtype);
    const double largest = values.back();
    EXPECT_EQ(largest, dtype == kE4m3 ? 448 : 57344);
    for (const auto scaling : {Float8Scaling::kTensor, Float8Scaling::kRows, Float8Scaling::kColumns}) {
      for (const bool power_of_two : {false, true}) {
        const auto x = spread(6, 10, 1);
        const auto found = to_float8(x, dtype, scaling, power_of_two);
        const auto scale = found.scale.expand_as(x);
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          const auto at = [&](const at::Tensor& matrix) { return matrix[i / 10][i % 10].item<float>(); };
          const double scaled = std::clamp<double>(at(x) * at(scale), -largest, largest);
          EXPECT_EQ(at(found.values.to(at::kFloat)), nearest(scaled, values)) << at(x) << " times " << at(scale);
        }
      }
    }
  }
}

TEST(Float8Matrix, UsesTheWholeRangeOfTheType) {
  const auto x = spread(6, 10, 2);
  const auto largest_after = [&](Float8Scaling scaling, bool power_of_two) {
    return (to_float8(x, kE4m3, scaling, power_of_two).values.to(at::kFloat)).abs();
  };
  EXPECT_EQ(largest_after(Float8Scaling::kTensor, false).amax().item<float>(), 448);
  EXPECT_TRUE(largest_after(Float8Scaling::kRows, false).amax(1).eq(448).all().item<bool>());
  EXPECT_TRUE(largest_after(Float8Scaling::kColumns, false).amax(0).eq(448).all().item<bool>());
  // A power of two that is rounded down leaves the largest at more than half; rounding to 3 bits keeps that.
  const auto of_rows = to_float8(x, kE4m3, Float8Scaling::kRows, true);
  EXPECT_TRUE(largest_after(Float8Scaling::kRows, true).amax(1).ge(224).all().item<bool>());
  EXPECT_TRUE(of_rows.scale.log2().eq(of_rows.scale.log2().round()).all().item<bool>());
  EXPECT_EQ(of_rows.scale.sizes(), (std::vector<std::int64_t>{6, 1}));
}

TEST(Float8Matrix, OfZerosIsZeroAndKeepsNaN) {
  const auto zeros = to_float8(at::zeros({2, 16}), kE4m3, Float8Scaling::kRows, true);
  EXPECT_TRUE(zeros.values.to(at::kFloat).eq(0).all().item<bool>());
  EXPECT_TRUE(zeros.scale.isfinite().all().item<bool>());
  auto x = at::ones({2, 16});
  x[1][3] = std::numeric_limits<float>::quiet_NaN();
  const auto found = to_float8(x, kE4m3, Float8Scaling::kRows, false).values.to(at::kFloat);
  EXPECT_TRUE(found[0].eq(448).all().item<bool>());
  EXPECT_TRUE(found[1].isnan().all().item<bool>());
}

// A matrix product in double, and how far one in float32 with the same values may be from it, in any order of
// summation.
struct Product {
  at::Tensor value, bound;
};

Product product_of(const at::Tensor& a, const at::Tensor& b) {
  const auto wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
  const double step = std::numeric_limits<float>::epsilon();
  // Each of the values was divided in float32, each product and each of the sums is rounded once more.
  return {wide_a.mm(wide_b), wide_a.abs().mm(wide_b.abs()) * (step * static_cast<double>(a.size(1) + 3))};
}

void expect_near(const at::Tensor& found, const Product& expected, const char* what) {
  const auto gap = (found.to(at::kDouble) - expected.value).abs();
  EXPECT_TRUE(gap.le(expected.bound).all().item<bool>())
      << what << ": " << (gap - expected.bound).amax().item<double>();
}

at::Tensor rounded(const at::Tensor& x, at::ScalarType dtype, Float8Scaling scaling, bool power_of_two) {
  const auto matrix = to_float8(x, dtype, scaling, power_of_two);
  return matrix.values.to(at::kDouble) / matrix.scale.to(at::kDouble);
}

// torch multiplies float8 matrices on the CPU, too, if they have one scale each: this program's way to it, with rows
// that are padded from 12 to 16 values, needs no GPU.
TEST(Float8Matrix, ScaledProductsAreTheEmulatedOnes) {
  at::globalContext().setUserEnabledMkldnn(false);  // oneDNN's kernels depend on the processor
  for (const std::int64_t common : {32, 12}) {
    for (const auto scaling : {Float8Scaling::kTensor, Float8Scaling::kRows}) {
      const auto a = to_float8(spread(6, common, 7), kE5m2, scaling, true);
      const auto b = to_float8(spread(48, common, 8), kE4m3, scaling, true).t();
      const auto wide = [](const Float8Matrix& matrix) {
        return matrix.values.to(at::kDouble) / matrix.scale.to(at::kDouble);
      };
      Product expected = product_of(wide(a), wide(b));
      // Scales of rows are applied to sums in bfloat16: two roundings of half of 2^-7 each, at most.
      if (scaling == Float8Scaling::kRows) expected.bound += (expected.value.abs() + expected.bound) * 0x1p-7;
      const auto found = float8_product(a, b, at::kFloat, /*fast=*/false, /*emulate=*/false);
      expect_near(found, expected, "scaled");
      expect_near(float8_product(a, b, at::kFloat, false, /*emulate=*/true), product_of(wide(a), wide(b)), "emulated");
    }
  }
  at::globalContext().setUserEnabledMkldnn(true);
}

class Float8Recipes : public testing::TestWithParam<Float8Recipe> {};

TEST_P(Float8Recipes, MultiplyRoundedMatrices) {
  using enum Float8Scaling;
  const bool is_tensorwise = GetParam() == Float8Recipe::kTensorwise,
             keeps_gw = GetParam() == Float8Recipe::kRowwiseWithGwHp;
  const auto scaling = [&](Float8Scaling wanted) { return is_tensorwise ? kTensor : wanted; };
  const auto of_gradient = is_tensorwise ? kE5m2 : kE4m3;
  const auto round = [&](const at::Tensor& x, at::ScalarType dtype, Float8Scaling by) {
    return rounded(x, dtype, scaling(by), !is_tensorwise);
  };
  auto x = spread(12, 32, 3).view({2, 6, 32}).requires_grad_(true);
  auto weight = spread(48, 32, 4).requires_grad_(true);
  const auto grad = spread(12, 48, 5), rows = x.detach().view({12, 32}), plain = weight.detach();

  const auto y = apply_float8_linear(x, weight, {.recipe = GetParam(), .emulate = true});
  const auto gradients = torch::autograd::grad({y}, {x, weight}, {grad.view({2, 6, 48})});

  expect_near(y.detach().view({12, 48}), product_of(round(rows, kE4m3, kRows), round(plain, kE4m3, kRows).t()),
              "output");
  const auto by_columns = round(plain, kE4m3, keeps_gw ? kTensor : kColumns);
  expect_near(gradients[0].view({12, 32}), product_of(round(grad, of_gradient, kRows), by_columns), "of the input");
  const auto of_weight = keeps_gw ? product_of(grad.t(), rows)
                                  : product_of(round(grad, of_gradient, kColumns).t(), round(rows, kE4m3, kColumns));
  expect_near(gradients[1], of_weight, "of the weight");
}

INSTANTIATE_TEST_SUITE_P(All, Float8Recipes,
                         testing::Values(Float8Recipe::kTensorwise, Float8Recipe::kRowwise,
                                         Float8Recipe::kRowwiseWithGwHp));

// The parameter has no values then, and only gets the gradient.
TEST(Float8Linear, ComputesWithAGatheredWeight) {
  const auto plain = spread(48, 32, 4), x = spread(12, 32, 3), grad = spread(12, 48, 5);
  const auto run = [&](const at::Tensor& values, const Float8Matrix& gathered) {
    auto input = x.detach().requires_grad_(true), weight = values.detach().requires_grad_(true);
    const auto y = apply_float8_linear(input, weight, {.emulate = true}, gathered);
    auto found = torch::autograd::grad({y}, {input, weight}, {grad});
    found.push_back(y.detach());
    return found;
  };
  const auto expected = run(plain, {});
  const auto found = run(at::full_like(plain, NAN), to_float8(plain, kE4m3, Float8Scaling::kTensor, false));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;

  Float8Linear layer(32, 16, /*has_bias=*/false, {.gathers_in_float8 = true});
  ASSERT_TRUE(layer.named_parameters()[0].parameter->float8);
  EXPECT_THROW(Float8Linear(32, 16, false, {.recipe = Float8Recipe::kRowwise, .gathers_in_float8 = true}),
               InternalError);
}

TEST(Float8Linear, HasALinearLayersParametersAndDtypes) {
  Float8Linear layer(32, 16, /*has_bias=*/true, {.emulate = true});
  std::vector<std::string> names;
  for (const auto& parameter : layer.named_parameters()) names.push_back(parameter.fqn);
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias"}));
  layer.weight = spread(16, 32, 6).to(at::kBFloat16);
  layer.bias = at::full({16}, 2, at::kBFloat16);
  const auto x = at::zeros({3, 32}, at::kBFloat16);
  EXPECT_TRUE(layer({x}).eq(2).all().item<bool>());
  EXPECT_EQ(layer({x}).scalar_type(), at::kBFloat16);
  // A dry run has no kernels of float8 and sees the shapes.
  const auto on_meta = apply_float8_linear(at::empty({2, 3, 32}, at::kMeta), at::empty({16, 32}, at::kMeta), {});
  EXPECT_EQ(on_meta.sizes(), (std::vector<std::int64_t>{2, 3, 16}));
}

}  // namespace
}  // namespace titan::nn
