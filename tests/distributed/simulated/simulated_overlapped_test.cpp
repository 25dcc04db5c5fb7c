// Tests linear layers that overlap with their collectives on the simulated device, where one sequence needs no copies.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/tensor_parallel/overlapped_linear.h"
#include "tests/support/run_ranks.h"
#include "tests/support/simulated_device/simulated_device.h"

namespace titan::tp {
namespace {

using ::testing::IsEmpty;

constexpr std::int64_t kTokens = 8, kIn = 4, kOut = 6;  // tokens of one rank

// Returns whole numbers, of which every sum is exact in any order.
at::Tensor numbers(at::IntArrayRef shape, std::int64_t first) {
  const auto numel = c10::multiply_integers(shape);
  return (at::arange(first, first + numel, at::kLong) * 7).remainder(5).sub(2).to(at::kFloat).view(shape);
}

at::Tensor on_device(const at::Tensor& x) { return x.to(sim::device()).requires_grad_(true); }

// Part `rank` of the tokens of x [B, R * kTokens, features].
at::Tensor own_tokens(const at::Tensor& x, int rank) { return x.narrow(1, rank * kTokens, kTokens); }

void gather_and_multiply(dist::World& world, std::int64_t rows) {
  auto& group = world.group();
  const auto whole = numbers({rows, group.size() * kTokens, kIn}, 0), weight = numbers({kOut, kIn}, 3 + world.rank());
  const auto grad = numbers({rows, group.size() * kTokens, kOut}, 1);
  const auto x = on_device(own_tokens(whole, world.rank()).contiguous()), w = on_device(weight);
  const auto made = all_gather_linear(x, w, group);
  made.output.backward(grad.to(sim::device()));
  EXPECT_TRUE(made.output.detach().cpu().equal(at::matmul(whole, weight.t())));
  EXPECT_TRUE(made.whole.detach().cpu().equal(whole));
  EXPECT_TRUE(w.grad().cpu().equal(grad.view({-1, kOut}).t().mm(whole.view({-1, kIn}))));
  at::Tensor of_x = at::zeros_like(whole);
  for (int rank = 0; rank < group.size(); ++rank) of_x += at::matmul(grad, numbers({kOut, kIn}, 3 + rank));
  EXPECT_TRUE(x.grad().cpu().equal(own_tokens(of_x, world.rank())));
}

void multiply_and_scatter(dist::World& world, std::int64_t rows) {
  auto& group = world.group();
  const auto input = [&](int rank) { return numbers({rows, group.size() * kTokens, kIn}, rank); };
  const auto weight = [](int rank) { return numbers({kOut, kIn}, 3 + rank); };
  const auto grad = numbers({rows, group.size() * kTokens, kOut}, 1);
  const auto x = on_device(input(world.rank())), w = on_device(weight(world.rank()));
  const auto output = linear_reduce_scatter(x, w, group);
  output.backward(own_tokens(grad, world.rank()).contiguous().to(sim::device()));
  at::Tensor sum = at::zeros_like(grad);
  for (int rank = 0; rank < group.size(); ++rank) sum += at::matmul(input(rank), weight(rank).t());
  EXPECT_TRUE(output.detach().cpu().equal(own_tokens(sum, world.rank())));
  EXPECT_TRUE(x.grad().cpu().equal(at::matmul(grad, weight(world.rank()))));
  EXPECT_TRUE(w.grad().cpu().equal(grad.view({-1, kOut}).t().mm(input(world.rank()).view({-1, kIn}))));
}

class SimulatedOverlappedLinear : public testing::TestWithParam<std::int64_t> {};

TEST_P(SimulatedOverlappedLinear, MultipliesInPlace) {
  sim::install();
  test::on_ranks(
      2,
      [rows = GetParam()](dist::World& world) {
        sim::reset();
        gather_and_multiply(world, rows);
        multiply_and_scatter(world, rows);
        const auto found = sim::findings();
        EXPECT_THAT(found.races, IsEmpty());
        const auto& kernels = found.steps.at(0).kernels;
        // Four parts of each of the two layers, forward and backward; the gradients of the weights are in one piece.
        EXPECT_EQ(kernels.contains("aten::bmm.out") ? kernels.at("aten::bmm.out") : 0, rows == 1 ? 4 * 4 : 0);
      },
      sim::device().type());
}

INSTANTIATE_TEST_SUITE_P(Rows, SimulatedOverlappedLinear, testing::Values(1, 2));

}  // namespace
}  // namespace titan::tp
