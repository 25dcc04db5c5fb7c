// Tests matmuls in 16 bits against float64, with each instruction set of this machine and each layout of the operands.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/matmul_kernel.h"
#include "of_this_machine.h"

namespace titan::kernels {
namespace {

// Kernels, and a dtype that they multiply.
struct Subject {
  const MatmulKernels* kernels;
  at::ScalarType dtype;

  bool is_tiles() const { return std::string(kernels->name) == "amx"; }
};
std::ostream& operator<<(std::ostream& out, const Subject& subject) {
  return out << subject.kernels->name << " in " << c10::toString(subject.dtype);
}

std::vector<Subject> subjects_of_this_machine() {
  std::vector<Subject> out;
  for (const auto* kernels : TITAN_KERNELS_OF_THIS_MACHINE(kMatmul))
    for (const auto dtype : {at::kBFloat16, at::kHalf}) out.push_back({kernels, dtype});
#if defined(__x86_64__)
  if (has_bfloat16_tiles()) {
    out.push_back({&amx::kMatmul, at::kBFloat16});
  } else {
    std::cout << "not run, this processor has no such instructions: amx\n";
  }
#endif
  return out;
}

struct Operands {
  at::Tensor left, right;
};

struct Shape {
  std::int64_t rows, depth, columns;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.rows << " x " << shape.depth << " x " << shape.columns;
}

// Layout of a matrix: the elements of a row are neighbors, or those of a column.
enum class Lies { kInRows, kInColumns };
constexpr Lies kWays[] = {Lies::kInRows, Lies::kInColumns};

at::Tensor make_matrix(std::int64_t rows, std::int64_t columns, Lies lies, at::ScalarType dtype = at::kBFloat16) {
  return lies == Lies::kInRows ? at::randn({rows, columns}, dtype) : at::randn({columns, rows}, dtype).t();
}

Operands make_operands(const Shape& shape, Lies left, Lies right, at::ScalarType dtype = at::kBFloat16) {
  at::manual_seed(shape.rows + shape.depth + shape.columns);
  return {make_matrix(shape.rows, shape.depth, left, dtype), make_matrix(shape.depth, shape.columns, right, dtype)};
}

at::Tensor product(const Subject& subject, const Operands& operands) {
  EXPECT_TRUE(takes_matmul(*subject.kernels, operands.left, operands.right)) << subject;
  const at::Tensor out = at::full({operands.left.size(0), operands.right.size(1)},
                                  std::numeric_limits<float>::quiet_NaN(), operands.left.options());
  matmul(*subject.kernels, operands.left, operands.right, out);
  return out;
}

// The result is rounded to 8 bits (float16: 11, or to a multiple of 2^-24), by up to half a unit in the last place. A
// sum of `depth` products in float32 is off by less than depth * 2^-24 of the sum of their sizes, in any order.
void expect_near_formula(const at::Tensor& found, const Operands& operands, const Shape& shape) {
  const bool is_float16 = found.scalar_type() == at::kHalf;
  const at::Tensor left = operands.left.to(at::kDouble), right = operands.right.to(at::kDouble);
  const at::Tensor expected = left.mm(right), sizes = left.abs().mm(right.abs());
  const at::Tensor sum_error = sizes * (static_cast<double>(shape.depth) * std::pow(2.0, -24));
  const at::Tensor rounding = (expected.abs() + sum_error) * std::pow(2.0, is_float16 ? -11 : -8);
  const at::Tensor bound = sum_error + rounding + (is_float16 ? std::pow(2.0, -25) : 0);
  EXPECT_TRUE(((found.to(at::kDouble) - expected).abs() <= bound).all().item<bool>()) << shape;
}

class Matmul : public testing::Test {
 protected:
  ~Matmul() override { at::set_num_threads(threads_before_); }

  const int threads_before_ = at::get_num_threads();
};

// Sizes around panels of 32 (tiles) and of 4, 6, 12, 8, 16 and 32; blocks of 240, 256, 480 and 512; the 960 or 1,024
// rows packed at once; a step of the depth (256 or 640); the limit of deep matmuls (1,024) and the depth packed for
// them (4,096 or 8,192); and rows that can be read in place, or are too far apart for that (2,048).
constexpr Shape kShapes[] = {{32, 32, 32},    {33, 300, 31},   {64, 1000, 96},  {100, 640, 257}, {257, 641, 300},
                             {256, 768, 256}, {128, 2048, 64}, {1100, 70, 130}, {600, 1100, 40}, {530, 8200, 33}};
// The tiles leave small shapes to other kernels.
constexpr Shape kSmallShapes[] = {{1, 1, 1}, {1, 256, 768}, {5, 3, 1}, {6, 17, 16}, {13, 9, 47}, {3, 4100, 2}};

TEST_F(Matmul, EqualsTheFormula) {
  for (const Subject& subject : subjects_of_this_machine()) {
    std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
    if (!subject.is_tiles()) shapes.insert(shapes.end(), std::begin(kSmallShapes), std::end(kSmallShapes));
    for (const Shape& shape : shapes)
      for (const Lies left : kWays)
        for (const Lies right : kWays) {
          SCOPED_TRACE(subject);
          const Operands operands = make_operands(shape, left, right, subject.dtype);
          expect_near_formula(product(subject, operands), operands, shape);
        }
  }
}

TEST_F(Matmul, IsTheSameForARowAlone) {
  for (const Subject& subject : subjects_of_this_machine()) {
    const Operands operands = make_operands({1100, 1000, 300}, Lies::kInRows, Lies::kInColumns, subject.dtype);
    const at::Tensor all = product(subject, operands);
    const at::Tensor some = product(subject, {operands.left.slice(0, 1000, 1040), operands.right.slice(1, 200, 250)});
    EXPECT_TRUE(some.equal(all.slice(0, 1000, 1040).slice(1, 200, 250))) << subject;
  }
}

TEST_F(Matmul, IsTheSameOnAnyNumberOfThreads) {
  for (const Subject& subject : subjects_of_this_machine()) {
    const Operands operands = make_operands({500, 700, 300}, Lies::kInColumns, Lies::kInRows, subject.dtype);
    at::set_num_threads(1);
    const at::Tensor one = product(subject, operands);
    for (const int threads : {2, 3, 8, 64}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(one.equal(product(subject, operands))) << subject << ", threads: " << threads;
    }
  }
}

// AVX2 and AVX-512 without 16-bit products add the same numbers in the same order.
TEST_F(Matmul, IsTheSameWithAnyFusedProducts) {
#if defined(__x86_64__)
  if (best_isa() < Isa::kAvx512) GTEST_SKIP() << "this processor has no AVX-512";
  const Operands operands = make_operands({100, 1500, 70}, Lies::kInRows, Lies::kInRows);
  EXPECT_TRUE(
      product({&avx2::kMatmul, at::kBFloat16}, operands).equal(product({&avx512::kMatmul, at::kBFloat16}, operands)));
#endif
}

TEST_F(Matmul, WritesNothingBesideItsRows) {
  for (const Subject& subject : subjects_of_this_machine()) {
    const Operands operands = make_operands({50, 164, 40}, Lies::kInRows, Lies::kInRows, subject.dtype);
    constexpr float kBefore = 1e4F;
    const at::Tensor whole = at::full({52, 80}, kBefore, operands.left.options());
    matmul(*subject.kernels, operands.left, operands.right, whole.slice(0, 1, 51).slice(1, 20, 60));
    EXPECT_TRUE(whole.slice(0, 1, 51).slice(1, 20, 60).equal(product(subject, operands))) << subject;
    EXPECT_EQ((whole == whole[0][0]).sum().item<std::int64_t>(), 52 * 80 - 50 * 40) << subject;
  }
}

TEST_F(Matmul, WhatIsNoNumberSpreadsToItsRow) {
  for (const Subject& subject : subjects_of_this_machine()) {
    const Operands operands = make_operands({64, 64, 64}, Lies::kInRows, Lies::kInColumns, subject.dtype);
    operands.left[40][3].fill_(std::numeric_limits<float>::infinity());
    operands.left[41][3].fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor out = product(subject, operands);
    EXPECT_TRUE(out[40].isinf().all().item<bool>()) << subject;
    EXPECT_TRUE(out[41].isnan().all().item<bool>()) << subject;
    EXPECT_TRUE(out.slice(0, 0, 40).isfinite().all().item<bool>()) << subject;
  }
}

// A sum beyond float16's largest number, 65,504, becomes infinite, as in ATen's cast; so does the halfway case.
TEST_F(Matmul, RoundsAsATenCasts) {
  const at::Tensor sums = at::tensor(
      {65504.0, 65519.0, 65520.0, 1e6, -65520.0, 3e-8, 2e-8, 6e-5, 6.1e-5, 0.1, -0.0, 2049.0, 2051.0, 1.0e-40, 3.4e38},
      at::kFloat);
  for (const Subject& subject : subjects_of_this_machine()) {
    if (subject.is_tiles()) continue;  // their sums are of products that are exact in bfloat16 only
    // A row of three parts times ones is their sum, exact in float32 before it is rounded.
    std::vector<at::Tensor> parts;
    at::Tensor rest = sums.clone();
    for (int i = 0; i < 3; ++i) {
      const at::Tensor part = rest.to(subject.dtype);
      parts.push_back(part.isinf().any().item<bool>() ? part.clamp(-60000, 60000) : part);
      rest = rest - parts.back().to(at::kFloat);
    }
    const at::Tensor left = at::stack(parts, 1), right = at::ones({3, 1}, subject.dtype);
    const at::Tensor exact = left.to(at::kDouble).sum(1, /*keepdim=*/true).to(at::kFloat);
    EXPECT_TRUE(product(subject, {left, right}).equal(exact.to(subject.dtype))) << subject;
  }
}

TEST_F(Matmul, KeepsNumbersBelowTheNormalOnes) {
  for (const Subject& subject : subjects_of_this_machine()) {
    if (subject.is_tiles()) continue;  // tiles treat these numbers as 0
    const double smallest = subject.dtype == at::kHalf ? std::pow(2.0, -24) : std::pow(2.0, -133);
    const at::Tensor left = at::arange(1, 65, at::kDouble).mul(smallest).to(subject.dtype).view({64, 1});
    const at::Tensor right = at::ones({1, 40}, subject.dtype);
    EXPECT_TRUE(product(subject, {left, right}).equal(left.expand({64, 40}))) << subject;
  }
}

// Pages that may be read and written, followed by one that may not.
class LastPage {
 public:
  LastPage() : size_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    memory_ =
        static_cast<char*>(mmap(nullptr, kPages * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + (kPages - 1) * size_, size_, PROT_NONE);
  }
  ~LastPage() { munmap(memory_, kPages * size_); }
  LastPage(const LastPage&) = delete;
  LastPage& operator=(const LastPage&) = delete;

  // Returns a copy of a matrix whose last element is the last before that page.
  at::Tensor at_the_end(const at::Tensor& matrix) const {
    const auto bytes = static_cast<std::size_t>(matrix.numel() * matrix.element_size());
    EXPECT_LE(bytes, (kPages - 1) * size_);
    const at::Tensor copy =
        at::from_blob(memory_ + (kPages - 1) * size_ - bytes, matrix.sizes(), matrix.strides(), matrix.options());
    return copy.copy_(matrix);
  }

 private:
  static constexpr std::size_t kPages = 200;
  std::size_t size_;
  char* memory_;
};

TEST_F(Matmul, ReadsNothingPastItsOperands) {
  const LastPage of_left, of_right;
  for (const Subject& subject : subjects_of_this_machine())
    for (const Shape& shape : {Shape{37, 300, 41}, {70, 333, 96}, {100, 256, 257}, {35, 1030, 35}})
      for (const Lies left : kWays)
        for (const Lies right : kWays) {
          const Operands operands = make_operands(shape, left, right, subject.dtype);
          const Operands at_the_end{of_left.at_the_end(operands.left), of_right.at_the_end(operands.right)};
          EXPECT_TRUE(product(subject, at_the_end).equal(product(subject, operands))) << subject << ", " << shape;
        }
}

TEST_F(Matmul, CopiesOperandsWithoutNeighbours) {
  for (const Subject& subject : subjects_of_this_machine()) {
    if (subject.is_tiles()) continue;
    const at::Tensor left = at::randn({40, 2, 60, 2}, subject.dtype).select(1, 0).select(2, 1);
    const at::Tensor right = at::randn({1, 50}, subject.dtype).expand({60, 50});
    expect_near_formula(product(subject, {left, right}), {left, right}, {40, 60, 50});
  }
}

// After install_matmul(), aten::mm and aten::bmm give correct results in every dtype, whichever kernel is best here.
TEST(MatmulOfATen, StandsInWhereItTakesTheTensors) {
  install_matmul();
  const at::Tensor wide = at::randn({96, 128});
  EXPECT_EQ(best_matmul(wide, wide.t()), nullptr);
  EXPECT_LT((wide.mm(wide.t()).to(at::kDouble) - wide.to(at::kDouble).mm(wide.to(at::kDouble).t()))
                .abs()
                .max()
                .item<double>(),
            1e-3);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const Shape shape{96, 128, 64};
    const Operands operands = make_operands(shape, Lies::kInRows, Lies::kInColumns, dtype);
    expect_near_formula(operands.left.mm(operands.right), operands, shape);
    // Writes into a tensor of another shape, one in columns, and an operand, which ATen's own matmul does not support.
    const at::Tensor square = at::randn({96, 96}, dtype);
    for (const at::Tensor& out : {at::empty({0}, dtype), at::empty({64, 96}, dtype).t()}) {
      at::Tensor target = out;
      at::mm_out(target, operands.left, operands.right);
      expect_near_formula(target, operands, shape);
    }
    at::Tensor overlapping = square.clone();
    if (best_matmul(square, square)) at::mm_out(overlapping, overlapping, overlapping);
    if (best_matmul(square, square)) expect_near_formula(overlapping, {square, square}, {96, 96, 96});
    // Nothing to add, and nothing to write.
    EXPECT_TRUE(at::mm(at::empty({4, 0}, dtype), at::empty({0, 3}, dtype)).equal(at::zeros({4, 3}, dtype)));
    EXPECT_EQ(at::mm(at::empty({0, 4}, dtype), at::empty({4, 3}, dtype)).numel(), 0);
    EXPECT_THROW(operands.left.mm(operands.left), c10::Error);
    EXPECT_THROW(operands.left.mm(operands.right.to(at::kFloat)), c10::Error);
    // Batched matmuls.
    const at::Tensor batch = at::randn({3, 40, 50}, dtype);
    const at::Tensor all = batch.bmm(batch.transpose(1, 2));
    for (int i = 0; i < 3; ++i) expect_near_formula(all[i], {batch[i], batch[i].t()}, {40, 50, 40});
  }
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
