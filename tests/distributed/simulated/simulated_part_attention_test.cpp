// Tests attention of parts of a row on a device, which has kernels for rectangles and causal squares only, against the
// CPU's kernel.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "nn/ops/part_attention.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan {
namespace {

using ::testing::IsEmpty;

struct PartInputs {
  at::Tensor q, k, v, grad;

  PartInputs on(c10::Device device) const { return {q.to(device), k.to(device), v.to(device), grad.to(device)}; }
};

// Returns output, sums and gradients in float64 on the host.
std::vector<at::Tensor> attend(const PartInputs& inputs, std::int64_t offset) {
  const auto [out, sums] = nn::attend_part(inputs.q, inputs.k, inputs.v, offset);
  const auto [q, k, v] = nn::attend_part_backward(inputs.grad, inputs.q, inputs.k, inputs.v, out, sums, offset);
  std::vector<at::Tensor> results = {out, sums, q, k, v};
  for (auto& each : results) each = each.to(at::kCPU).to(at::kDouble);
  return results;
}

struct Shape {
  std::int64_t queries, keys, offset, dim;
};

// Tolerances relative to the largest element: float32 sums up at most 40 products in a chain of three, in different
// orders, 40 * 2^-24 * 3 = 7e-6. In bfloat16 both sides round: results, and on the device also weights, score gradients
// and two merged parts, each by up to 2^-8 of terms that are up to four times the largest element.
TEST(SimulatedPartAttention, IsThatOfTheHost) {
  sim::install();
  sim::reset();
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto& [queries, keys, offset, dim] :
         {Shape{12, 12, 0, 16}, {12, 20, 19, 8}, {12, 24, 12, 16}, {20, 12, 3, 16}, {10, 40, 9, 12}}) {
      at::manual_seed(queries + keys);
      const auto draw = [&, dim = dim, dtype = dtype](std::int64_t heads, std::int64_t length) {
        return at::randn({2, length, heads, dim}).to(dtype).transpose(1, 2);
      };
      const PartInputs inputs{draw(4, queries), draw(2, keys), draw(2, keys), draw(4, queries)};
      const auto expected = attend(inputs, offset), found = attend(inputs.on(sim::device()), offset);
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].sizes(), expected[i].sizes());
        EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(),
                  expected[i].abs().max().item<double>() * (dtype == at::kFloat ? 7e-6 : 0x1p-5))
            << dtype << ", " << queries << " queries, " << keys << " keys, offset " << offset << ", result " << i;
      }
    }
  EXPECT_THAT(sim::findings().races, IsEmpty());
}

}  // namespace
}  // namespace titan
