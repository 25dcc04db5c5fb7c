// Tests the loss of a linear layer in parts on the simulated device, where a matmul has the rows of several parts.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "nn/ops/cross_entropy.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan::nn {
namespace {

using ::testing::IsEmpty;

constexpr std::int64_t kRows = 42, kVocab = 65, kPart = 5;

struct Layer {
  at::Tensor x, weight, labels;

  Layer to(at::Device device) const {
    const auto leaf = [&](const at::Tensor& tensor) { return tensor.detach().to(device).set_requires_grad(true); };
    return {leaf(x), leaf(weight), labels.to(device)};
  }
  std::vector<at::Tensor> gradients(const at::Tensor& loss) const {
    auto grads = torch::autograd::grad({loss}, {x, weight});
    return {grads[0].to(at::kCPU, at::kFloat), grads[1].to(at::kCPU, at::kFloat)};
  }
};

Layer layer(std::int64_t dim, at::ScalarType dtype) {
  at::manual_seed(4);
  auto labels = at::randint(kVocab, {kRows}, at::kLong);
  labels[2] = kIgnoreIndex;
  return {at::randn({kRows, dim}).to(dtype), at::randn({kVocab, dim}).to(dtype), labels};
}

struct Shape {
  std::int64_t dim;
  at::ScalarType dtype;
  std::int64_t num_matmuls;  // of the layer's output
  std::int64_t num_parts;
};

class SimulatedLoss : public testing::TestWithParam<Shape> {};

// Compares relative to the largest element, since sums cancel. float32: both round sums of up to 65 products. bfloat16:
// the logits' gradients agree up to their last bit, 2^-8, and a sum of them is rounded once for each of six matmuls
// and at the end.
TEST_P(SimulatedLoss, InPartsIsThatOfTheWhole) {
  sim::install();
  const auto [dim, dtype, num_matmuls, num_parts] = GetParam();
  const Layer here = layer(dim, dtype).to(at::kCPU), there = here.to(sim::device());
  sim::reset();
  const auto loss =
      detail::linear_cross_entropy_sum_in_parts(there.x, there.weight, there.labels, kPart, detail::aten_rows());
  const auto kernels = sim::findings().steps.at(0).kernels;
  const auto count = [&](const char* name) { return kernels.contains(name) ? kernels.at(name) : 0; };
  // The outputs and the gradients of the weight, and those of x.
  EXPECT_EQ(count("aten::mm.out") + count("aten::addmm.out"), 3 * num_matmuls);
  EXPECT_EQ(count("aten::_log_softmax.out"), num_parts) << "losses are not in parts";

  const auto whole = composed::cross_entropy_sum(at::linear(here.x, here.weight), here.labels);
  EXPECT_NEAR(loss.item<double>(), whole.item<double>(), 1e-6 * whole.item<double>());
  const auto expected = here.gradients(whole), found = there.gradients(loss);
  for (std::size_t i = 0; i < 2; ++i) {
    const double bound = (dtype == at::kFloat ? 1e-5 : 1.0 / 64) * expected[i].abs().max().item<double>();
    EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(), bound) << "gradient " << i;
  }
  EXPECT_THAT(sim::findings().races, IsEmpty());
}

// All rows have one matmul if they take no more memory than the weight's gradient in float32: at most dim in float32,
// twice dim in bfloat16. Else each has half of that. Parts are of its rows: 8 are 5 and 3.
INSTANTIATE_TEST_SUITE_P(Shapes, SimulatedLoss,
                         testing::Values(Shape{16, at::kFloat, 6, 11}, Shape{48, at::kFloat, 1, 9},
                                         Shape{8, at::kBFloat16, 6, 11}, Shape{24, at::kBFloat16, 1, 9}));

}  // namespace
}  // namespace titan::nn
