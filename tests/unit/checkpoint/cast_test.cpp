#include "checkpoint/format/cast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace titan::checkpoint {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

TEST(Cast, KeepsTheSignOfANaN) {
  const auto from = at::tensor({kNaN, -kNaN, 1.0, -0.0, -kInfinity}, at::kDouble);
  for (const auto wide : {at::kDouble, at::kFloat}) {
    for (const auto narrow : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto to = cast(from.to(wide), narrow);
      EXPECT_EQ(to.scalar_type(), narrow);
      EXPECT_TRUE(to.isnan().equal(from.isnan())) << wide << " to " << narrow;
      EXPECT_TRUE(to.signbit().equal(from.signbit())) << wide << " to " << narrow;
    }
  }
}

TEST(Cast, NamesWhatADtypeCannotHold) {
  const auto from = at::tensor({65504.0, 65519.0, kInfinity, kNaN, -1e5, 70000.0}, at::kFloat);
  EXPECT_EQ(overflow_text(from, at::kHalf), "2 numbers beyond the range of float16, the largest of them -100000");
  EXPECT_EQ(overflow_text(from.slice(0, 0, 4), at::kHalf),
            "");  // values that round to the largest number, and infinities
  EXPECT_EQ(overflow_text(from, at::kBFloat16), "");
  EXPECT_EQ(overflow_text(from.to(at::kBFloat16), at::kHalf),
            "4 numbers beyond the range of float16, the largest of them -99840");
  EXPECT_EQ(overflow_text(at::tensor({3.4e38}, at::kFloat), at::kBFloat16),
            "1 number beyond the range of bfloat16, the largest of them 3.4e+38");
  EXPECT_EQ(overflow_text(at::tensor({1e39}, at::kDouble), at::kFloat),
            "1 number beyond the range of float32, the largest of them 1e+39");
  EXPECT_EQ(overflow_text(at::zeros({0}), at::kHalf), "");
  EXPECT_EQ(overflow_text(at::ones({70000}).index_fill(0, at::tensor({69999}, at::kLong), 7e4), at::kHalf),
            "1 number beyond the range of float16, the largest of them 70000");
}

}  // namespace
}  // namespace titan::checkpoint
