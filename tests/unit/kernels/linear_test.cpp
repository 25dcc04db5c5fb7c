// Tests linear layers of few rows against float64, with each instruction set of this machine.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/rows/linear_kernel.h"
#include "of_this_machine.h"

namespace titan::kernels {
namespace {

struct Case {
  std::int64_t rows, depth, outputs;
};
std::ostream& operator<<(std::ostream& out, const Case& each) {
  return out << each.rows << " x " << each.depth << " x " << each.outputs;
}

// Depths that fill no vector, one, all chains and some more; outputs for one thread and for several.
constexpr Case kCases[] = {{1, 1, 1}, {1, 7, 3}, {1, 16, 5}, {2, 64, 9}, {3, 131, 17}, {8, 768, 300}, {1, 515, 2050}};

void expect_near_formula(const at::Tensor& found, const at::Tensor& x, const at::Tensor& weight) {
  const auto wide_x = x.to(at::kDouble), wide_weight = weight.to(at::kDouble);
  const auto exact = at::linear(wide_x, wide_weight);
  // A float32 sum of `depth` products is off by less than depth * 2^-24 of the sum of their sizes, in any order; in
  // bfloat16 the result is rounded once more, by up to 2^-8 of itself. 1.01 covers products of both errors.
  const double last_place = found.scalar_type() == at::kFloat ? 0x1p-24 : 0x1p-8;
  const auto sizes = at::linear(wide_x.abs(), wide_weight.abs());
  const auto allowed = (sizes * (static_cast<double>(x.size(-1)) * 0x1p-24) + exact.abs() * last_place) * 1.01;
  EXPECT_TRUE(((found.to(at::kDouble) - exact).abs() <= allowed).all().item<bool>());
}

TEST(LinearOfFewRows, IsNearTheFormula) {
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kLinear))
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const Case& each : kCases) {
        SCOPED_TRACE(testing::Message() << kernels->name << " " << c10::toString(dtype) << " " << each);
        at::manual_seed(each.depth);
        const auto x = at::randn({1, each.rows, each.depth}, dtype),
                   weight = at::randn({each.outputs, each.depth}, dtype);
        ASSERT_TRUE(takes_few_rows(x, weight));
        const auto found = linear_of_few_rows(*kernels, x, weight);
        EXPECT_EQ(found.sizes(), (std::vector<std::int64_t>{1, each.rows, each.outputs}));
        EXPECT_EQ(found.scalar_type(), dtype);
        expect_near_formula(found, x, weight);
      }
}

// A text is the same to the bit whether it is written alone or with others, by any number of threads.
TEST(LinearOfFewRows, DependsOnItsOwnRowAlone) {
  const int threads = at::get_num_threads();
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kLinear))
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << kernels->name << " " << c10::toString(dtype));
      at::manual_seed(3);
      const auto x = at::randn({8, 200}, dtype), weight = at::randn({1001, 200}, dtype);
      const auto together = linear_of_few_rows(*kernels, x, weight);
      at::set_num_threads(3);
      EXPECT_TRUE(linear_of_few_rows(*kernels, x, weight).equal(together));
      at::set_num_threads(threads);
      for (std::int64_t i = 0; i < 8; ++i) EXPECT_TRUE(linear_of_few_rows(*kernels, x[i], weight).equal(together[i]));
    }
}

TEST(LinearOfFewRows, NanAndInfinityPass) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kLinear)) {
    const auto weight = at::ones({3, 40});
    weight[1][39] = nan;
    weight[2][0] = inf;
    const auto found = linear_of_few_rows(*kernels, at::ones({1, 40}), weight)[0];
    EXPECT_EQ(found[0].item<float>(), 40);
    EXPECT_TRUE(std::isnan(found[1].item<float>()));
    EXPECT_EQ(found[2].item<double>(), inf);
  }
}

TEST(LinearOfFewRows, LeavesOtherTensorsToAten) {
  const auto x = at::ones({1, 8}), weight = at::ones({3, 8});
  EXPECT_TRUE(takes_few_rows(x, weight));
  EXPECT_FALSE(takes_few_rows(at::ones({9, 8}), weight)) << "too many rows";
  EXPECT_FALSE(takes_few_rows(x.to(at::kDouble), weight.to(at::kDouble)));
  EXPECT_FALSE(takes_few_rows(x.to(at::kBFloat16), weight)) << "two dtypes";
  EXPECT_FALSE(takes_few_rows(at::ones({1, 7}), weight)) << "another depth";
  EXPECT_FALSE(takes_few_rows(x, at::ones({8, 3}).t())) << "a weight without neighboring rows";
  EXPECT_FALSE(takes_few_rows(at::ones({8, 2}).t(), weight)) << "strided rows";
  EXPECT_FALSE(takes_few_rows(at::ones({0, 8}), weight));
}

}  // namespace
}  // namespace titan::kernels
