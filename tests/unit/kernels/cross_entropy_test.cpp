// Tests every instruction set of this machine against the formula in float64, and against what it replaces: ATen's
// operators on a float32 copy.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/rows/cross_entropy_kernel.h"
#include "tests/unit/kernels/of_this_machine.h"

namespace titan::kernels {
namespace {

constexpr std::int64_t kIgnored = -100;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

struct Results {
  double loss;
  at::Tensor grad;
};

Results run(const CrossEntropyKernels& kernels, const at::Tensor& logits, const at::Tensor& labels, double factor = 1) {
  const auto [loss, stats] = cross_entropy_forward(kernels, logits, labels, kIgnored);
  const at::Tensor grad = at::empty_like(logits);
  cross_entropy_backward(kernels, at::full({}, factor), logits, labels, stats, grad);
  return {loss.item<double>(), grad};
}

// The formula on a float64 copy, with gradients by hand.
Results formula(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor wide = logits.to(at::kDouble), counts = labels.ne(kIgnored);
  const at::Tensor log_softmax = wide - wide.logsumexp(-1, true);
  const at::Tensor labels_or_0 = labels.clamp_min(0).unsqueeze(-1);
  const at::Tensor loss = -(log_softmax.gather(-1, labels_or_0).squeeze(-1)).masked_select(counts).sum();
  const at::Tensor one_hot = at::zeros_like(wide).scatter(-1, labels_or_0, 1);
  return {loss.item<double>(), (log_softmax.exp() - one_hot) * counts.unsqueeze(-1)};
}

// The composed operators, as in cross_entropy_sum() without the kernels.
Results composed(const at::Tensor& logits, const at::Tensor& labels, double factor) {
  const at::Tensor log_softmax = at::log_softmax(logits.to(at::kFloat), -1);
  const auto [loss, total] = at::nll_loss_forward(log_softmax, labels, {}, at::Reduction::Sum, kIgnored);
  const at::Tensor grad =
      at::nll_loss_backward(at::full({}, factor), log_softmax, labels, {}, at::Reduction::Sum, kIgnored, total);
  return {loss.item<double>(),
          at::_log_softmax_backward_data(grad, log_softmax, -1, at::kFloat).to(logits.scalar_type())};
}

std::vector<const CrossEntropyKernels*> kernels_of_this_machine() {
  return TITAN_KERNELS_OF_THIS_MACHINE(kCrossEntropy);
}

struct Inputs {
  std::string what;
  at::Tensor logits, labels;  // [rows, V], [rows]
};

// Vocabularies smaller than a vector, with odd ends, and a published model's plus one; up to 5 rows.
std::vector<Inputs> all_inputs(at::ScalarType dtype) {
  std::vector<Inputs> out;
  at::manual_seed(5);
  std::int64_t rows = 0;
  for (const std::int64_t vocab : {1, 7, 16, 1000, 32001}) {
    ++rows;
    at::Tensor labels = at::randint(vocab, {rows}, at::kLong);
    const at::Tensor logits = (at::randn({rows, vocab}) * 3).to(dtype);
    out.push_back({"usual, V " + std::to_string(vocab), logits, labels});
    out.push_back({"label last, V " + std::to_string(vocab), logits, at::full_like(labels, vocab - 1)});
    out.push_back({"around 1e4, V " + std::to_string(vocab), (at::randn({rows, vocab}) * 50 + 1e4).to(dtype), labels});
    out.push_back({"around -1e4, V " + std::to_string(vocab), (at::randn({rows, vocab}) - 1e4).to(dtype), labels});
    out.push_back(
        {"from -1e4 to 1e4, V " + std::to_string(vocab), ((at::rand({rows, vocab}) - 0.5) * 2e4).to(dtype), labels});
    out.push_back({"equal, V " + std::to_string(vocab), at::full_like(logits, 2.5), labels});
    labels = labels.clone();
    labels[rows / 2] = kIgnored;
    out.push_back({"one ignored, V " + std::to_string(vocab), logits, labels});
  }
  return out;
}

// A unit in the last place of float32, relative to the value.
constexpr double kUlp = 1.0 / (1 << 23);

// Tolerance for the sum of a row's exponentials. Each exponential is off by 2 ulp and by the rounding of its
// argument, half an ulp of at most 87: 87/2 ulp in the worst case, but only for e^-87. x - largest of size d adds d/2
// ulp to e^-d, at most 0.2 ulp of the largest exponential. Sums are over blocks of 32 and over the totals of V / 2048
// blocks (V / 512 without vectors): (32 + 63 + 4) / 2 ulp if all rounded alike, which they do not. 64 ulp covers all
// of it; an error e of the sum is an error e of the loss.
constexpr double kSumTolerance = 64 * kUlp;

void expect_near(const Results& found, const Results& expected, double grad_rounding, const std::string& what) {
  // The sum itself is rounded to float32 once.
  const auto rows = static_cast<double>(expected.grad.size(0));
  EXPECT_NEAR(found.loss, expected.loss, rows * kSumTolerance + std::abs(expected.loss) * kUlp) << what;
  // A gradient has the relative error of the sum and of its own exponential, with d/2 ulp for its argument (d up to
  // 87), and is then rounded to its dtype. The label's is p - 1, with an absolute error like p's. Below e^-87 all is 0.
  const at::Tensor grad = expected.grad;
  const at::Tensor allowed = grad.abs() * (grad_rounding + kSumTolerance + 48 * kUlp) + grad.lt(0) * (2 * kUlp) + 1e-37;
  EXPECT_LE(((found.grad.to(at::kDouble) - grad).abs() - allowed).max().item<double>(), 0) << what;
}

// Half a unit in the last place, for 24 and 8 bits.
double rounding_of(at::ScalarType dtype) { return std::pow(2.0, dtype == at::kFloat ? -24 : -8); }

TEST(CrossEntropy, EqualsTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Inputs& inputs : all_inputs(dtype)) {
      const auto expected = formula(inputs.logits, inputs.labels);
      for (const auto* kernels : kernels_of_this_machine())
        expect_near(run(*kernels, inputs.logits, inputs.labels), expected, rounding_of(dtype),
                    std::string(kernels->name) + ", " + inputs.what + ", " + c10::toString(dtype));
    }
}

// Powers of two, which do not round: as large as a loss scale of float16, as small as the division by many labels.
TEST(CrossEntropy, GradientsScaleWithTheLoss) {
  const at::Tensor logits = at::randn({3, 77}), labels = at::randint(77, {3}, at::kLong);
  for (const auto* kernels : kernels_of_this_machine())
    for (const double factor : {65536.0, 1.0 / 65536})
      EXPECT_TRUE(run(*kernels, logits, labels, factor).grad.equal(run(*kernels, logits, labels).grad * factor))
          << kernels->name;
}

// Our kernel may be as far from ATen's operators as both may be from the formula (the operators' softmax loses up to
// half an ulp of the logarithm more). In bfloat16 a value midway between two neighbors may round to either.
TEST(CrossEntropy, EqualsATensOperators) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Inputs& inputs : all_inputs(dtype))
      for (const auto* kernels : kernels_of_this_machine()) {
        const Results found = run(*kernels, inputs.logits, inputs.labels, 3);
        const Results expected = composed(inputs.logits, inputs.labels, 3);
        const std::string what = std::string(kernels->name) + ", " + inputs.what;
        EXPECT_NEAR(found.loss, expected.loss,
                    2 * static_cast<double>(inputs.labels.numel()) * kSumTolerance + std::abs(expected.loss) * 4 * kUlp)
            << what;
        const double neighbours = dtype == at::kFloat ? 0 : std::pow(2.0, -7);
        EXPECT_TRUE(
            found.grad.to(at::kDouble).allclose(expected.grad.to(at::kDouble), neighbours + 256 * kUlp, 3 * 4 * kUlp))
            << what;
      }
}

TEST(CrossEntropy, NothingCountsWhereAllIsIgnored) {
  for (const auto* kernels : kernels_of_this_machine()) {
    const at::Tensor logits = at::full({3, 33}, kNotANumber, at::kBFloat16);
    const auto found = run(*kernels, logits, at::full({3}, kIgnored, at::kLong));
    EXPECT_EQ(found.loss, 0) << kernels->name;
    EXPECT_TRUE(found.grad.eq(0).all().item<bool>()) << kernels->name;
  }
}

// An infinity or NaN gives infinite and NaN losses and gradients in the same places as ATen's operators; rows without
// one are unaffected.
TEST(CrossEntropy, WhatIsNoNumberSpreadsAsInATen) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine())
      for (const float bad : {kNotANumber, kInfinity, -kInfinity})
        for (const std::int64_t place : {0, 40, 66, 67, 68}) {  // in the vectors, at their end, the label's; all
          const at::Tensor labels = at::full({2}, 66, at::kLong);
          const at::Tensor logits = at::randn({2, 68}, at::kFloat).to(dtype);
          (place < 68 ? logits[1][place] : logits[1]).fill_(bad);
          const Results found = run(*kernels, logits, labels), expected = composed(logits, labels, 1);
          const std::string what =
              std::string(kernels->name) + ", " + std::to_string(bad) + " at " + std::to_string(place);
          EXPECT_EQ(std::isnan(found.loss), std::isnan(expected.loss)) << what;
          EXPECT_EQ(std::isinf(found.loss), std::isinf(expected.loss)) << what;
          EXPECT_TRUE(found.grad.isnan().equal(expected.grad.isnan())) << what;
          EXPECT_FALSE(found.grad[0].isnan().any().item<bool>()) << what;
        }
}

// Each loss fits into float32 but their sum does not: it is infinite as in ATen, and each row keeps its gradients.
TEST(CrossEntropy, ASumBeyondFloat32IsInfinite) {
  const auto logits = at::zeros({4, 5});
  logits.select(1, 0).fill_(-3e38);
  const auto labels = at::zeros({4}, at::kLong);
  const auto theirs = composed(logits, labels, 1);
  ASSERT_EQ(theirs.loss, kInfinity);
  for (const auto* kernels : kernels_of_this_machine()) {
    const auto ours = run(*kernels, logits, labels);
    EXPECT_EQ(ours.loss, kInfinity);
    EXPECT_TRUE(ours.grad.allclose(theirs.grad)) << ours.grad << theirs.grad;
  }
}

TEST(CrossEntropy, RefusesALabelOutOfBounds) {
  const at::Tensor logits = at::zeros({3, 5});
  for (const std::int64_t bad : {5, -1, -99, -101, 1 << 30}) {
    const at::Tensor labels = at::zeros({3}, at::kLong);
    labels[1] = bad;
    try {
      cross_entropy_forward(best_cross_entropy(), logits, labels, kIgnored);
      ADD_FAILURE() << "took label " << bad;
    } catch (const c10::IndexError& error) {
      EXPECT_NE(std::string(error.what()).find("Target " + std::to_string(bad) + " is out of bounds."),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(CrossEntropy, TheGradientMayTakeTheLogitsMemory) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* kernels : kernels_of_this_machine()) {
      const at::Tensor logits = at::randn({4, 1001}).to(dtype), labels = at::randint(1001, {4}, at::kLong);
      const at::Tensor expected = run(*kernels, logits, labels).grad;
      const auto stats = cross_entropy_forward(*kernels, logits, labels, kIgnored).stats;
      cross_entropy_backward(*kernels, at::full({}, 1.0), logits, labels, stats, logits);
      EXPECT_TRUE(logits.equal(expected)) << kernels->name;
    }
}

TEST(CrossEntropy, IsTheSameOnAnyNumberOfThreads) {
  const at::Tensor logits = at::randn({101, 5003}).to(at::kBFloat16), labels = at::randint(5003, {101}, at::kLong);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = run(best_cross_entropy(), logits, labels);
  at::set_num_threads(3);
  const Results three = run(best_cross_entropy(), logits, labels);
  at::set_num_threads(threads);
  EXPECT_EQ(one.loss, three.loss);
  EXPECT_TRUE(one.grad.equal(three.grad));
}

TEST(CrossEntropy, TakesWhatItCanRead) {
  const at::Tensor logits = at::zeros({2, 3, 8}), labels = at::zeros({2, 3}, at::kLong);
  EXPECT_TRUE(takes(logits, labels));
  EXPECT_TRUE(takes(logits.to(at::kBFloat16), labels));
  EXPECT_TRUE(takes(logits.to(at::kMeta), labels.to(at::kMeta)));
  EXPECT_FALSE(takes(logits.to(at::kHalf), labels));
  EXPECT_FALSE(takes(logits.to(at::kDouble), labels));
  EXPECT_FALSE(takes(logits, labels.to(at::kInt)));
  EXPECT_FALSE(takes(logits, labels.flatten()));
  EXPECT_FALSE(takes(logits.narrow(2, 0, 7), labels));
  EXPECT_FALSE(takes(logits.narrow(0, 0, 0), labels.narrow(0, 0, 0)));
}

}  // namespace
}  // namespace titan::kernels
