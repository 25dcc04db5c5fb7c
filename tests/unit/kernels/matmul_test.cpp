// Products in tiles against float64, however the operands lie. Where the processor has no tiles ATen multiplies.
#include "kernels/cpu/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>

#include "kernels/cpu/isa.h"

namespace titan::kernels {
namespace {

struct Operands {
  at::Tensor left, right;
};

struct Shape {
  std::int64_t rows, depth, columns;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.rows << " x " << shape.depth << " x " << shape.columns;
}

// Whether the elements of a row are neighbours, or those of a column.
enum class Lies { kInRows, kInColumns };

at::Tensor make_matrix(std::int64_t rows, std::int64_t columns, Lies lies) {
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  return lies == Lies::kInRows ? at::randn({rows, columns}, options) : at::randn({columns, rows}, options).t();
}

Operands make_operands(const Shape& shape, Lies left, Lies right) {
  at::manual_seed(shape.rows + shape.depth + shape.columns);
  return {make_matrix(shape.rows, shape.depth, left), make_matrix(shape.depth, shape.columns, right)};
}

at::Tensor product(const Operands& operands) {
  const at::Tensor out = at::full({operands.left.size(0), operands.right.size(1)},
                                  std::numeric_limits<float>::quiet_NaN(), operands.left.options());
  matmul(operands.left, operands.right, out);
  return out;
}

// The result is rounded to 8 bits, by up to 2^-8 of itself. A sum of `depth` products in float32 is off by less than
// depth * 2^-24 of the sum of their sizes, whatever the order.
void expect_near_formula(const at::Tensor& found, const Operands& operands, const Shape& shape) {
  const at::Tensor left = operands.left.to(at::kDouble), right = operands.right.to(at::kDouble);
  const at::Tensor expected = left.mm(right), sizes = left.abs().mm(right.abs());
  const at::Tensor sum_error = sizes * (static_cast<double>(shape.depth) * std::pow(2.0, -24));
  const at::Tensor bound = sum_error + (expected.abs() + sum_error) * std::pow(2.0, -8);
  EXPECT_TRUE(((found.to(at::kDouble) - expected).abs() <= bound).all().item<bool>()) << shape;
}

class Matmul : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bfloat16_tiles()) GTEST_SKIP() << "this processor has no tiles";
  }
  ~Matmul() override { at::set_num_threads(threads_before_); }

  const int threads_before_ = at::get_num_threads();
};

// Around a panel of 32, blocks of 256 and 512, the 1,024 rows that are packed at once, a step of the depth (640), what is
// deep (1,024) and what is packed of that (8,192); and rows that can be read where they are, or cannot for their distance
// (2,048).
constexpr Shape kShapes[] = {{32, 32, 32},    {33, 300, 31},   {64, 1000, 96},  {100, 640, 257}, {257, 641, 300},
                             {256, 768, 256}, {128, 2048, 64}, {1100, 70, 130}, {600, 1100, 40}, {530, 8200, 33}};

TEST_F(Matmul, EqualsTheFormula) {
  for (const Shape& shape : kShapes)
    for (const Lies left : {Lies::kInRows, Lies::kInColumns})
      for (const Lies right : {Lies::kInRows, Lies::kInColumns}) {
        const Operands operands = make_operands(shape, left, right);
        expect_near_formula(product(operands), operands, shape);
      }
}

TEST_F(Matmul, IsTheSameForARowAlone) {
  const Operands operands = make_operands({1100, 1000, 300}, Lies::kInRows, Lies::kInColumns);
  const at::Tensor all = product(operands);
  const at::Tensor some = product({operands.left.slice(0, 1000, 1040), operands.right.slice(1, 200, 250)});
  EXPECT_TRUE(some.equal(all.slice(0, 1000, 1040).slice(1, 200, 250)));
}

TEST_F(Matmul, IsTheSameOnAnyNumberOfThreads) {
  const Operands operands = make_operands({500, 700, 300}, Lies::kInColumns, Lies::kInRows);
  at::set_num_threads(1);
  const at::Tensor one = product(operands);
  for (const int threads : {2, 3, 8, 64}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(one.equal(product(operands))) << threads;
  }
}

TEST_F(Matmul, WritesNothingBesideItsRows) {
  const Operands operands = make_operands({50, 64, 40}, Lies::kInRows, Lies::kInRows);
  constexpr float kBefore = 1e30F;
  const at::Tensor whole = at::full({52, 80}, kBefore, operands.left.options());
  matmul(operands.left, operands.right, whole.slice(0, 1, 51).slice(1, 20, 60));
  EXPECT_TRUE(whole.slice(0, 1, 51).slice(1, 20, 60).equal(product(operands)));
  EXPECT_EQ((whole == whole[0][0]).sum().item<std::int64_t>(), 52 * 80 - 50 * 40);
}

TEST_F(Matmul, WhatIsNoNumberSpreadsToItsRow) {
  const Operands operands = make_operands({64, 64, 64}, Lies::kInRows, Lies::kInColumns);
  operands.left[40][3].fill_(std::numeric_limits<float>::infinity());
  operands.left[41][3].fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor out = product(operands);
  EXPECT_TRUE(out[40].isinf().all().item<bool>());
  EXPECT_TRUE(out[41].isnan().all().item<bool>());
  EXPECT_TRUE(out.slice(0, 0, 40).isfinite().all().item<bool>());
}

TEST(MatmulOfATen, StandsInWhereItTakesTheTensors) {
  const Shape shape{96, 128, 64};
  const Operands operands = make_operands(shape, Lies::kInRows, Lies::kInColumns);
  const at::Tensor small = at::randn({4, 4}, at::kBFloat16), wide = at::randn({96, 128});
  const at::Tensor of_small = small.mm(small), of_wide = wide.mm(wide.t());
  install_matmul();
  EXPECT_FALSE(takes_matmul(small, small));
  EXPECT_FALSE(takes_matmul(wide, wide.t()));
  EXPECT_TRUE(small.mm(small).equal(of_small) && wide.mm(wide.t()).equal(of_wide));
  EXPECT_EQ(takes_matmul(operands.left, operands.right), has_bfloat16_tiles());
  expect_near_formula(operands.left.mm(operands.right), operands, shape);
  // Into a tensor of another shape, and of columns.
  for (const at::Tensor& out : {at::empty({0}, at::kBFloat16), at::empty({64, 96}, at::kBFloat16).t()}) {
    at::Tensor target = out;
    at::mm_out(target, operands.left, operands.right);
    expect_near_formula(target, operands, shape);
  }
  EXPECT_THROW(operands.left.mm(operands.left), c10::Error);
}

TEST(MatmulOfATen, IsDifferentiated) {
  const Shape shape{96, 128, 64};
  const Operands operands = make_operands(shape, Lies::kInRows, Lies::kInRows);
  install_matmul();
  const at::Tensor left = operands.left.clone().set_requires_grad(true);
  const at::Tensor right = operands.right.clone().set_requires_grad(true);
  const at::Tensor out_grad = make_matrix(shape.rows, shape.columns, Lies::kInRows);
  left.mm(right).backward(out_grad);
  expect_near_formula(left.grad(), {out_grad, operands.right.t()}, {shape.rows, shape.columns, shape.depth});
  expect_near_formula(right.grad(), {operands.left.t(), out_grad}, {shape.depth, shape.rows, shape.columns});
}

}  // namespace
}  // namespace titan::kernels
