// Tests attention within documents on a device, in one kernel, against one document after the other on the host.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/documents.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan {
namespace {

using ::testing::IsEmpty;

struct Heads {
  at::Tensor q, k, v;

  Heads in(at::TensorOptions options) const {
    const auto leaf = [&](const at::Tensor& x) { return x.to(options).requires_grad_(true); };
    return {leaf(q), leaf(k), leaf(v)};
  }
};

// Returns the output and the gradients, in float64 on the host.
std::vector<at::Tensor> with_gradients(const Heads& h, const at::Tensor& out, const at::Tensor& weights) {
  auto results = torch::autograd::grad({(out * weights.to(out.options())).sum()}, {h.q, h.k, h.v});
  results.insert(results.begin(), out.detach());
  for (auto& each : results) each = each.to(at::kCPU).to(at::kDouble);
  return results;
}

// Returns 4 heads of queries and 2 of keys and values.
const Heads& bfloat16_heads() {
  static const Heads drawn = [] {
    at::manual_seed(7);
    const auto draw = [](std::int64_t heads) { return at::randn({2, 12, heads, 8}).to(at::kBFloat16).transpose(1, 2); };
    return Heads{draw(4), draw(2), draw(2)};
  }();
  return drawn;
}

const std::vector<std::int64_t> kLengths = {5, 1, 6, 2, 10};  // two rows of 12

std::int64_t count(const std::string& kernel) {
  std::int64_t found = 0;
  for (const auto& [step, of_step] : sim::findings().steps)
    if (of_step.kernels.contains(kernel)) found += of_step.kernels.at(kernel);
  return found;
}

// Tolerance: 2 bfloat16 units of the largest value. Results are rounded to bfloat16, and one side adds rounded terms in
// the sums over the two query heads of a key head.
TEST(SimulatedDocuments, AreOneKernelEachWay) {
  sim::install();
  sim::reset();
  const auto lengths = at::tensor(kLengths, at::kLong), weights = at::arange(2 * 12 * 32).sin().view({2, 4, 12, 8});
  const auto host = bfloat16_heads().in(at::kDouble), there = bfloat16_heads().in(sim::device());
  const auto expected = with_gradients(host, nn::document_attention(host.q, host.k, host.v, lengths), weights);
  const auto bounds = nn::document_bounds(lengths, sim::device());
  EXPECT_TRUE(bounds.to(at::kCPU).equal(at::tensor({0, 5, 6, 12, 14, 24}, at::kInt)));
  const auto out = nn::document_attention(there.q, there.k, there.v, lengths, bounds);
  const auto found = with_gradients(there, out, weights);
  EXPECT_EQ(count("aten::_flash_attention_forward"), 1);
  EXPECT_EQ(count("aten::_flash_attention_backward"), 1);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(), expected[i].abs().max().item<double>() / 128) << i;
  EXPECT_THAT(sim::findings().races, IsEmpty());
}

TEST(SimulatedDocuments, OfFloat32AreOneAfterTheOther) {
  sim::install();
  sim::reset();
  const auto lengths = at::tensor(kLengths, at::kLong);
  const auto there = bfloat16_heads().in(at::TensorOptions(at::kFloat).device(sim::device()));
  nn::document_attention(there.q, there.k, there.v, lengths, nn::document_bounds(lengths, sim::device()));
  EXPECT_EQ(count("aten::_flash_attention_forward"), 0);
}

}  // namespace
}  // namespace titan
