// Tests attention over rows that ranks share against attention over whole rows, forward and backward.
//
// The plain reference computes in float64. In float32, a score is a dot product of 16 terms and an output a mean of up
// to 48 values; their errors are some sqrt(16) + sqrt(48) units in the last place, 6e-8 each, of values whose scale is
// 1, and gradients add the same once more for each of their factors. 1e-5 of the largest value holds for any order of
// sums and for each way to split.
#include "parallel/context/split_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/run_ranks.h"

namespace titan::parallel {
namespace {

constexpr std::int64_t kB = 2, kT = 48, kHeads = 4, kKvHeads = 2, kE = 16;

at::Tensor values(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

struct Inputs {
  at::Tensor q, k, v, weights;  // the loss is the sum of out * weights

  // Returns those of whole rows, the same on all ranks.
  static Inputs whole() {
    return {values({kB, kHeads, kT, kE}, 1), values({kB, kKvHeads, kT, kE}, 2), values({kB, kKvHeads, kT, kE}, 3),
            values({kB, kHeads, kT, kE}, 4)};
  }
  Inputs map(const std::function<at::Tensor(const at::Tensor&)>& change) const {
    return {change(q).requires_grad_(), change(k).requires_grad_(), change(v).requires_grad_(), change(weights)};
  }
};

// The formula: a token attends to itself and to the tokens before it in its document.
at::Tensor plain_attention(const Inputs& x, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    numbers.insert(numbers.end(), static_cast<std::size_t>(lengths[i]), static_cast<std::int64_t>(i));
  const auto documents = at::tensor(numbers, at::kLong).view({kB, 1, kT});
  const auto mask =
      documents.unsqueeze(-1).eq(documents.unsqueeze(-2)).logical_and(at::ones({kT, kT}, at::kBool).tril());
  const auto repeated = [](const at::Tensor& heads) { return heads.repeat_interleave(kHeads / kKvHeads, 1); };
  const auto scores = at::matmul(x.q, repeated(x.k).transpose(-1, -2)) / std::sqrt(static_cast<double>(kE));
  return at::matmul(at::softmax(scores.masked_fill(mask.logical_not(), -INFINITY), -1), repeated(x.v));
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double bound, const std::string& what) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  const auto gap = (found.to(at::kDouble) - expected).abs().max().item<double>();
  EXPECT_LE(gap, bound * expected.abs().max().item<double>()) << what;
}

// Compares the results of this rank's tokens with those of whole rows.
void expect_is_attention(const RowSharing& sharing, const std::vector<std::int64_t>& lengths, at::ScalarType dtype,
                         double bound) {
  const auto documents = at::tensor(lengths, at::kLong);
  const auto split = split_row(sharing.balance, kT, sharing.group.size(), documents);
  const auto positions = positions_of(split[static_cast<std::size_t>(sharing.group.rank())]);
  const auto part = [&](const at::Tensor& whole) { return whole.index_select(2, positions); };
  const Inputs whole = Inputs::whole();
  // As the layers before attention make them: transposed, in the dtype of the model.
  const Inputs own = whole.map(
      [&](const at::Tensor& x) { return part(x).transpose(1, 2).contiguous().transpose(1, 2).to(dtype).detach(); });
  const auto out = split_attention(own.q, own.k, own.v, documents, sharing);
  EXPECT_EQ(out.scalar_type(), dtype);
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
  (out * own.weights).sum().backward();

  // The reference gets the rounded values.
  const Inputs exact = whole.map([&](const at::Tensor& x) { return x.to(dtype).to(at::kDouble).detach(); });
  const auto expected = plain_attention(exact, lengths);
  (expected * exact.weights).sum().backward();
  expect_near(out, part(expected), bound, "output");
  expect_near(own.q.grad(), part(exact.q.grad()), bound, "gradient of queries");
  expect_near(own.k.grad(), part(exact.k.grad()), bound, "gradient of keys");
  expect_near(own.v.grad(), part(exact.v.grad()), bound, "gradient of values");
}

const std::vector<std::vector<std::int64_t>> kDocuments = {
    {48, 48}, {5, 20, 23, 48}, {1, 1, 46, 12, 12, 12, 12}, {24, 24, 30, 18}};

void expect_all_ways(int ranks, Rotation rotation) {
  test::on_ranks(ranks, [&](dist::World& world) {
    for (const LoadBalance balance : {LoadBalance::kHeadTail, LoadBalance::kNone, LoadBalance::kByWork})
      for (const auto& lengths : kDocuments)
        expect_is_attention({world.group(), balance, rotation}, lengths, at::kFloat, 1e-5);
    // A rounding to bfloat16 is 2^-9 of a value. Probabilities, outputs of the parts, the output that backward reads
    // and the gradients are each rounded, some of them several times: 2^-6 of the largest value bounds eight roundings.
    expect_is_attention({world.group(), LoadBalance::kHeadTail, rotation}, kDocuments[0], at::kBFloat16, 1.0 / 64);
    expect_is_attention({world.group(), LoadBalance::kByWork, rotation}, kDocuments[1], at::kBFloat16, 1.0 / 64);
    expect_is_attention({world.group(), LoadBalance::kHeadTail, rotation}, kDocuments[1], at::kHalf, 1.0 / 512);
  });
}

TEST(SplitAttention, GathersOnTwoRanks) { expect_all_ways(2, Rotation::kAllGather); }
TEST(SplitAttention, GathersOnThreeRanks) { expect_all_ways(3, Rotation::kAllGather); }
TEST(SplitAttention, GoesAroundTwoRanks) { expect_all_ways(2, Rotation::kRing); }
TEST(SplitAttention, GoesAroundFourRanks) { expect_all_ways(4, Rotation::kRing); }

TEST(SplitAttention, LeavesWholeRowsAlone) {
  test::on_ranks(2, [](dist::World& world) {
    SplitAttentionCore core(RowSharing{world.group()});
    nn::AttentionCore plain;
    const Inputs x = Inputs::whole();
    EXPECT_TRUE(core(x.q, x.k, x.v).equal(plain(x.q, x.k, x.v)));
    const auto lengths = at::tensor({10, 38, 48}, at::kLong);
    EXPECT_TRUE(core(x.q, x.k, x.v, lengths).equal(plain(x.q, x.k, x.v, lengths)));
  });
}

}  // namespace
}  // namespace titan::parallel
