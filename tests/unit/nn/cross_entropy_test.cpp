// Tests the losses through autograd: equal to ATen's operators on a float32 copy of the full logits, in less memory.
#include "nn/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/error.h"

namespace titan::nn {
namespace {

constexpr std::int64_t kV = 515;

struct Problem {
  at::Tensor weights, labels;

  explicit Problem(at::ScalarType dtype) {
    at::manual_seed(3);
    weights = at::randn({2, 6, kV}).to(dtype).set_requires_grad(true);
    labels = at::randint(kV, {2, 6}, at::kLong);
    labels[1][2] = kIgnoreIndex;
  }
  // Logits that, like a model's, nothing else holds.
  at::Tensor logits() const { return weights * 2; }
};

at::Tensor gradient(const Problem& problem, const at::Tensor& loss) {
  problem.weights.mutable_grad().reset();
  torch::autograd::backward({loss}, {});
  return problem.weights.grad().to(at::kFloat);
}

// float32: both are within some 64 units in the last place (tests/unit/kernels/cross_entropy_test.cpp) of the
// formula; bfloat16: a value may be rounded to the other of two neighbors.
TEST(CrossEntropySum, EqualsATensOperators) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Problem problem(dtype);
    const double rounding = dtype == at::kFloat ? 3e-5 : 1.0 / 128;
    const auto ours = cross_entropy_sum(problem.logits(), problem.labels);
    const auto atens = composed::cross_entropy_sum(problem.logits(), problem.labels);
    EXPECT_EQ(ours.scalar_type(), at::kFloat);
    EXPECT_EQ(ours.dim(), 0);
    EXPECT_NEAR(ours.item<double>(), atens.item<double>(), 1e-6 * atens.item<double>());
    const auto grad = gradient(problem, ours / 11.0 * 1024.0);
    EXPECT_TRUE(grad.allclose(gradient(problem, atens / 11.0 * 1024.0), rounding, 1e-5));
    EXPECT_GT(grad.abs().max().item<double>(), 50);  // scaled
    EXPECT_TRUE(grad[1][2].eq(0).all().item<bool>());
    const at::NoGradGuard no_grad;
    EXPECT_EQ(cross_entropy_sum(problem.logits(), problem.labels).item<double>(), ours.item<double>());
  }
}

TEST(CrossEntropySum, TakesLogitsThatAreNotContiguous) {
  const Problem problem(at::kFloat);
  const auto transposed = problem.logits().transpose(0, 1), labels = problem.labels.t();
  EXPECT_NEAR(cross_entropy_sum(transposed, labels).item<double>(),
              composed::cross_entropy_sum(transposed, labels).item<double>(), 1e-3);
}

TEST(CrossEntropySum, RefusesALabelOutOfBoundsAsATenDoes) {
  const Problem problem(at::kFloat);
  problem.labels[0][0] = kV;
  EXPECT_THROW(composed::cross_entropy_sum(problem.logits(), problem.labels), c10::IndexError);
  EXPECT_THROW(cross_entropy_sum(problem.logits(), problem.labels), c10::IndexError);
}

// Place of the logits' gradient after backward: in the memory of the logits, `memory`, or elsewhere.
enum class Place { kSame, kElsewhere };
Place place_of_gradient(const at::Tensor& loss, const at::Tensor& weights, const void* memory) {
  const void* seen = nullptr;
  // The node behind the loss is that of the multiplication; its input is the gradient of the logits.
  const auto product = loss.grad_fn()->next_edge(0).function;
  struct Hook : torch::autograd::FunctionPreHook {
    explicit Hook(const void*& s) : seen(s) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& grads) override {
      seen = grads.at(0).const_data_ptr();
      return grads;
    }
    const void*& seen;
  };
  product->add_pre_hook(std::make_unique<Hook>(seen));
  weights.mutable_grad().reset();
  torch::autograd::backward({loss}, {});
  EXPECT_NE(seen, nullptr);
  return seen == memory ? Place::kSame : Place::kElsewhere;
}

TEST(CrossEntropySum, GradientTakesTheMemoryOfLogitsThatNobodyHolds) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Problem problem(dtype);
    const auto expected = gradient(problem, composed::cross_entropy_sum(problem.logits(), problem.labels));
    auto logits = problem.logits();
    const void* const memory = logits.const_data_ptr();
    const auto loss = cross_entropy_sum(logits, problem.labels);
    logits.reset();
    EXPECT_EQ(place_of_gradient(loss, problem.weights, memory), Place::kSame);
    EXPECT_TRUE(problem.weights.grad().to(at::kFloat).allclose(expected, 1.0 / 128, 1e-5));
  }
}

TEST(CrossEntropySum, LogitsThatSomeoneHoldsStayAsTheyAre) {
  const Problem problem(at::kBFloat16);
  const auto expected = problem.logits().detach().clone();
  {
    const auto held = problem.logits();
    EXPECT_EQ(place_of_gradient(cross_entropy_sum(held, problem.labels), problem.weights, held.const_data_ptr()),
              Place::kElsewhere);
    EXPECT_TRUE(held.equal(expected));
  }
  {
    auto logits = problem.logits();
    const auto view = logits.detach()[1];  // another tensor with the same memory
    const void* const memory = logits.const_data_ptr();
    const auto loss = cross_entropy_sum(logits, problem.labels);
    logits.reset();
    EXPECT_EQ(place_of_gradient(loss, problem.weights, memory), Place::kElsewhere);
    EXPECT_TRUE(view.equal(expected[1]));
  }
  {
    // Leaves are held by their owner.
    const auto leaf = expected.clone().set_requires_grad(true);
    torch::autograd::backward({cross_entropy_sum(leaf, problem.labels)}, {});
    EXPECT_TRUE(leaf.detach().equal(expected));
  }
}

TEST(CrossEntropySum, BackwardMayComeTwiceWhereTheGraphIsKept) {
  const Problem problem(at::kFloat);
  const auto loss = cross_entropy_sum(problem.logits(), problem.labels);
  torch::autograd::backward({loss}, {}, /*retain_graph=*/true);
  const auto first = problem.weights.grad().clone();
  EXPECT_TRUE(gradient(problem, loss).equal(first));
}

TEST(CrossEntropySum, RefusesToBeDifferentiatedTwice) {
  const Problem problem(at::kFloat);
  const auto loss = cross_entropy_sum(problem.logits(), problem.labels);
  EXPECT_THROW(torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/true), InternalError);
}

// A linear layer and labels: 42 rows in two dims.
struct LinearProblem {
  at::Tensor x, weight, labels;

  explicit LinearProblem(at::ScalarType dtype) {
    at::manual_seed(4);
    x = at::randn({2, 21, 40}).to(dtype).set_requires_grad(true);
    weight = at::randn({kV, 40}).to(dtype).set_requires_grad(true);
    labels = at::randint(kV, {2, 21}, at::kLong);
    labels[1][2] = kIgnoreIndex;
  }
  at::Tensor in_parts(std::int64_t rows) const {
    return detail::linear_cross_entropy_sum_in_parts(x, weight, labels, rows);
  }
  at::Tensor whole() const { return composed::cross_entropy_sum(at::linear(x, weight), labels); }
  // Returns the gradients of x and the weight.
  std::vector<at::Tensor> gradients(const at::Tensor& loss) const {
    auto grads = torch::autograd::grad({loss / 8.0}, {x, weight}, {}, /*retain_graph=*/true);
    for (const auto& grad : grads) EXPECT_EQ(grad.scalar_type(), x.scalar_type());
    return {grads[0].to(at::kFloat), grads[1].to(at::kFloat)};
  }
};

// Compares relative to the largest element, since sums cancel. float32: both round sums of up to 515 products.
// bfloat16: the logits' gradients agree up to their last bit, 2^-8, and the factor 1/8 is exact. ATen rounds a sum of
// them once; here it is rounded once for each of up to 42 parts, of which a few are large, and at the end.
void expect_that_of_the_whole(const LinearProblem& problem, const at::Tensor& in_parts, std::int64_t rows) {
  const auto whole = problem.whole();
  EXPECT_NEAR(in_parts.item<double>(), whole.item<double>(), 1e-6 * whole.item<double>()) << rows;
  const double bound = problem.x.scalar_type() == at::kFloat ? 1e-5 : 1.0 / 64;
  const auto expected = problem.gradients(whole), found = problem.gradients(in_parts);
  for (std::size_t i = 0; i < 2; ++i) {
    const double largest = expected[i].abs().max().item<double>();
    const double off = (found[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(off, bound * largest) << rows << " rows, gradient " << i;
  }
}

TEST(LinearCrossEntropySum, InPartsIsThatOfTheWhole) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::int64_t rows : {1, 5, 41, 42, 100}) {
      const LinearProblem problem(dtype);
      const auto in_parts = problem.in_parts(rows);
      EXPECT_EQ(in_parts.scalar_type(), at::kFloat);
      EXPECT_EQ(in_parts.dim(), 0);
      expect_that_of_the_whole(problem, in_parts, rows);
    }
}

// A GPU computes it in this way.
TEST(LinearCrossEntropySum, InPartsByAtensOperatorsIsThatOfTheWhole) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::int64_t rows : {5, 41, 42}) {
      const LinearProblem problem(dtype);
      const auto in_parts = detail::linear_cross_entropy_sum_in_parts(problem.x, problem.weight, problem.labels, rows,
                                                                      detail::aten_rows());
      expect_that_of_the_whole(problem, in_parts, rows);
    }
}

// Weights are powers of two, which add no rounding: the loss and its gradients are those of the rows one by one.
TEST(LinearCrossEntropySum, CountsEachRowAsOftenAsItsWeightSays) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const LinearProblem problem(dtype);
    const auto weights = at::pow(2.0, at::arange(42, at::kFloat).remainder(5) - 2).view({2, 21});
    at::Tensor expected;
    for (std::int64_t i = 0; i < 42; ++i) {
      auto labels = at::full({42}, kIgnoreIndex, at::kLong);
      labels[i] = problem.labels.flatten()[i];
      const auto one = composed::cross_entropy_sum(at::linear(problem.x, problem.weight), labels.view({2, 21}));
      const auto weighted = one * weights.flatten()[i].item<double>();
      expected = i == 0 ? weighted : expected + weighted;
    }
    const auto of = [&](const RowLosses& losses, std::int64_t rows) {
      return detail::linear_cross_entropy_sum_in_parts(problem.x, problem.weight, problem.labels, rows, losses,
                                                       weights);
    };
    const auto logits = at::linear(problem.x, problem.weight);
    const std::vector<at::Tensor> found = {linear_cross_entropy_sum(problem.x, problem.weight, problem.labels, weights),
                                           of(detail::aten_rows(), 5), of(detail::aten_rows(), 42),
                                           cross_entropy_sum(logits, problem.labels, weights),
                                           composed::cross_entropy_sum(logits, problem.labels, weights)};
    const auto expected_grads = problem.gradients(expected);
    for (std::size_t k = 0; k < found.size(); ++k) {
      EXPECT_NEAR(found[k].item<double>(), expected.item<double>(), 2e-6 * expected.item<double>()) << k;
      const auto grads = problem.gradients(found[k]);
      for (std::size_t i = 0; i < 2; ++i) {
        const double bound = (dtype == at::kFloat ? 1e-5 : 1.0 / 64) * expected_grads[i].abs().max().item<double>();
        EXPECT_LE((grads[i] - expected_grads[i]).abs().max().item<double>(), bound) << k << " gradient " << i;
      }
    }
  }
}

TEST(RowWeights, ArePartsOfAConversation) {
  EXPECT_FALSE(row_weights_of({}, at::kCPU).defined());
  EXPECT_TRUE(row_weights_of(at::tensor({1, 4}, at::kLong), at::kCPU).equal(at::tensor({1.0F, 0.25F})));
}

TEST(LinearCrossEntropySum, WithoutAGraphIsTheLossAlone) {
  const LinearProblem problem(at::kFloat);
  const auto expected = problem.in_parts(5);
  EXPECT_TRUE(expected.requires_grad());
  const at::NoGradGuard no_grad;
  const auto found = problem.in_parts(5);
  EXPECT_FALSE(found.requires_grad());
  EXPECT_TRUE(found.equal(expected));
}

TEST(LinearCrossEntropySum, MayBeDifferentiatedAgainButNotTwice) {
  const LinearProblem problem(at::kBFloat16);
  const auto loss = problem.in_parts(5);
  const auto first = problem.gradients(loss), second = problem.gradients(loss);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(first[i].equal(second[i]));
  torch::autograd::backward({loss / 8.0}, {});  // the last time, in place
  EXPECT_TRUE(problem.weight.grad().to(at::kFloat).equal(first[1]));
  EXPECT_THROW(torch::autograd::backward({problem.in_parts(5)}, {}, /*retain_graph=*/true, /*create_graph=*/true),
               InternalError);
}

// Peak bytes of tensors since its construction.
class PeakBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    bytes_ += size;
    peak = std::max(peak, bytes_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak = 0;

 private:
  std::int64_t bytes_ = 0;
};

// 128 MiB of logits in float32, of which at most 64 MiB exist at a time.
TEST(LinearCrossEntropySum, NeverHasAllLogitsWhereTheyAreMany) {
  constexpr std::int64_t kRows = 1024, kDim = 16, kVocab = 32768;
  const auto x = at::randn({1, kRows, kDim}).set_requires_grad(true);
  const auto weight = at::randn({kVocab, kDim}).set_requires_grad(true);
  const auto labels = at::randint(kVocab, {1, kRows}, at::kLong);
  const auto peak = std::make_shared<PeakBytes>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
    torch::autograd::backward({linear_cross_entropy_sum(x, weight, labels)}, {});
  }
  EXPECT_EQ(rows_of_logits({kRows, kDim, kVocab, at::kFloat}), 512);
  EXPECT_GT(peak->peak, std::int64_t{64} << 20);
  EXPECT_LT(peak->peak, std::int64_t{80} << 20);
  EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
}

TEST(RowsOfLogits, AreFewerWhereThatSavesMemory) {
  EXPECT_EQ(rows_of_logits({1024, 256, 2048, at::kFloat}), 1024);       // 8 MiB
  EXPECT_EQ(rows_of_logits({1024, 768, 32000, at::kFloat}), 512);       // 125 MiB
  EXPECT_EQ(rows_of_logits({1024, 768, 32000, at::kBFloat16}), 1024);   // 62 MiB
  EXPECT_EQ(rows_of_logits({8192, 768, 32000, at::kBFloat16}), 1024);   // 500 MiB, and 94 of sums
  EXPECT_EQ(rows_of_logits({4096, 4096, 32000, at::kBFloat16}), 4096);  // 250 MiB, but 500 of sums
  EXPECT_EQ(rows_of_logits({1000, 64, 1 << 20, at::kFloat}), 250);      // 4 GiB
  // On a GPU: 12 GiB with their copies, and 2 of sums.
  EXPECT_EQ(rows_of_logits({8192, 4096, 128256, at::kBFloat16, /*on_gpu=*/true}), 820);
  EXPECT_EQ(rows_of_logits({1024, 256, 2048, at::kBFloat16, /*on_gpu=*/true}), 1024);
}

}  // namespace
}  // namespace titan::nn
