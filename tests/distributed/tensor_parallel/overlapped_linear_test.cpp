// Tests the layers that overlap their collective with their matmul against the collective and the matmul in sequence.
//
// Both add the same terms: the products of a row in an order that may depend on the number of rows of the matrix, and
// the ranks' sums in rank order. Sums of up to 2 x 3 x 8 = 48 terms differ by sqrt(48) units in the last place, 6e-8
// each: 1e-6 of the largest value, with a margin of 2.
#include "parallel/tensor_parallel/overlapped_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/ops/op_trace.h"
#include "parallel/autograd_collectives.h"
#include "tests/support/run_ranks.h"

namespace titan::tp {
namespace {

constexpr std::int64_t kB = 2, kIn = 6, kOut = 5;

// Returns random values: the same on all ranks for one seed, different ones if `seed` depends on the rank.
at::Tensor values(at::IntArrayRef shape, int seed) {
  return at::randn(shape, at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed)));
}

void expect_near(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_LE((got - want).abs().max().item<double>(), 1e-6 * want.abs().max().item<double>());
}

struct Inputs {
  at::Tensor x, weight;
};

Inputs inputs(std::int64_t tokens, std::int64_t rank) {
  return {values({kB, tokens, kIn}, 10 + static_cast<int>(rank)).requires_grad_(),
          values({kOut, kIn}, 7).requires_grad_()};
}

// Runs `use` with several numbers of tokens per rank: four parts of 2, two of 3, one of 3.
void for_each_size(int ranks, const std::function<void(dist::ProcessGroup& group, std::int64_t local_tokens)>& use) {
  test::on_ranks(ranks, [&](dist::World& world) {
    for (const std::int64_t local_tokens : {8, 6, 3}) use(world.group(), local_tokens);
  });
}

void expect_gathers_as_the_collective_does(int ranks) {
  for_each_size(ranks, [](dist::ProcessGroup& group, std::int64_t local_tokens) {
    const std::int64_t tokens = local_tokens * group.size();
    const auto of_output = values({kB, tokens, kOut}, 20 + group.rank()), of_whole = values({kB, tokens, kIn}, 30);
    const auto got = inputs(local_tokens, group.rank()), want = inputs(local_tokens, group.rank());

    const auto made = all_gather_linear(got.x, got.weight, group);
    ((made.output * of_output).sum() + (made.whole * of_whole).sum()).backward();
    const auto whole = parallel::all_gather(want.x, 1, group);
    const auto output = at::linear(whole, want.weight);
    ((output * of_output).sum() + (whole * of_whole).sum()).backward();

    EXPECT_TRUE(made.whole.equal(whole));
    expect_near(made.output, output);
    expect_near(got.x.grad(), want.x.grad());
    expect_near(got.weight.grad(), want.weight.grad());
  });
}

TEST(OverlappedLinear, GathersOnTwoRanks) { expect_gathers_as_the_collective_does(2); }
TEST(OverlappedLinear, GathersOnThreeRanks) { expect_gathers_as_the_collective_does(3); }

void expect_scatters_as_the_collective_does(int ranks) {
  for_each_size(ranks, [](dist::ProcessGroup& group, std::int64_t local_tokens) {
    const auto of_output = values({kB, local_tokens, kOut}, 20 + group.rank());
    const auto got = inputs(local_tokens * group.size(), group.rank());
    const auto want = inputs(local_tokens * group.size(), group.rank());

    const auto sum = linear_reduce_scatter(got.x, got.weight, group);
    (sum * of_output).sum().backward();
    const auto plain = parallel::reduce_scatter(at::linear(want.x, want.weight), 1, group);
    (plain * of_output).sum().backward();

    expect_near(sum, plain);
    expect_near(got.x.grad(), want.x.grad());
    expect_near(got.weight.grad(), want.weight.grad());
  });
}

TEST(OverlappedLinear, ScattersOnTwoRanks) { expect_scatters_as_the_collective_does(2); }
TEST(OverlappedLinear, ScattersOnThreeRanks) { expect_scatters_as_the_collective_does(3); }

// Tests a layer whose output is unused because only a sibling takes the gathered input, and one whose gathered input is
// unused.
TEST(OverlappedLinear, OneOutputMayBeUnused) {
  test::on_ranks(2, [](dist::World& world) {
    auto& group = world.group();
    const auto got = inputs(4, group.rank()), want = inputs(4, group.rank());
    all_gather_linear(got.x, got.weight, group).whole.sum().backward();
    parallel::all_gather(want.x, 1, group).sum().backward();
    expect_near(got.x.grad(), want.x.grad());
    EXPECT_EQ(got.weight.grad().abs().max().item<double>(), 0);

    const auto alone = inputs(4, group.rank());
    all_gather_linear(alone.x, alone.weight, group).output.sum().backward();
    EXPECT_GT(alone.weight.grad().abs().max().item<double>(), 0);
  });
}

// A recomputation takes the tensors that a checkpointed module keeps, and does not compute them again.
TEST(OverlappedLinear, AKeptOutputIsTaken) {
  test::on_ranks(2, [](dist::World& world) {
    auto& group = world.group();
    const auto [x, weight] = inputs(4, group.rank());
    const at::NoGradGuard no_grad;
    nn::OpTrace trace([](const nn::Op&) { return true; });
    const nn::OpTrace::Scope scope(trace);
    const auto gathered = all_gather_linear(x, weight, group).output;
    const auto scattered = linear_reduce_scatter(x, weight, group);
    trace.start_recomputation(trace.release_kept(), /*check=*/true, /*verbose=*/false);
    const auto made = all_gather_linear(x, weight, group);
    EXPECT_EQ(made.output.data_ptr(), gathered.data_ptr());
    EXPECT_TRUE(made.whole.equal(parallel::all_gather(x, 1, group)));
    EXPECT_EQ(linear_reduce_scatter(x, weight, group).data_ptr(), scattered.data_ptr());
    trace.finish_recomputation();
  });
}

}  // namespace
}  // namespace titan::tp
