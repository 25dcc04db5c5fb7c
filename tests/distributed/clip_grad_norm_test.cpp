// Tests norms and clipping of sharded gradients against ATen on the full ones, with shards over both, one or none of a
// mesh's axes.
#include "optim/clip_grad_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "distributed/mesh.h"
#include "distributed/tensor/dtensor.h"
#include "optim/adamw.h"
#include "tests/support/run_ranks.h"

namespace titan {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  at::Tensor whole;
  std::vector<std::string> axes;  // axes of the mesh over which dim 0 is split, outermost first
};

std::vector<Case> make_cases(double scale = 1.0) {
  const auto random = [&](std::int64_t rows, std::uint64_t seed) {
    return at::randn({rows, 3}, at::detail::createCPUGenerator(seed), at::kFloat).mul(scale);
  };
  auto zeros = at::zeros({4, 3});
  return {{random(9, 1), {"tp"}},   {random(8, 2), {"fsdp"}}, {random(7, 3), {"fsdp", "tp"}},
          {random(2, 4), {}},       {zeros, {"fsdp", "tp"}},  {random(1, 5), {"fsdp", "tp"}},  // most parts empty
          {random(6, 6), {"fsdp"}}, {random(3, 7), {}},       {random(5, 8), {"tp"}}};
}

// Returns the rows that torch.chunk gives index `rank` of `size`.
at::Tensor chunk(const at::Tensor& whole, int rank, int size) {
  const auto rows = whole.size(0), each = (rows + size - 1) / size;
  const auto begin = std::min<std::int64_t>(rows, rank * each);
  return whole.narrow(0, begin, std::min<std::int64_t>(each, rows - begin)).clone();
}

std::vector<optim::ShardedGrad> shard(const std::vector<Case>& cases, const dist::DeviceMesh& mesh) {
  std::vector<optim::ShardedGrad> grads;
  for (const auto& [whole, axes] : cases) {
    optim::ShardedGrad grad{whole.clone(), {}};
    for (const auto& axis : axes) {
      grad.grad = chunk(grad.grad, mesh.local_rank(axis), mesh.size(axis));
      grad.sharded_over.push_back(&mesh.group(axis));
    }
    grads.push_back(std::move(grad));
  }
  return grads;
}

// Returns what torch.nn.utils.get_total_norm returns.
at::Tensor expected_norm(const std::vector<Case>& cases, double norm_type) {
  std::vector<at::Tensor> norms;
  for (const auto& c : cases) norms.push_back(at::linalg_vector_norm(c.whole, norm_type));
  return at::linalg_vector_norm(at::stack(norms), norm_type);
}

std::vector<int> shape_for(int ranks) {
  if (ranks == 4) return {2, 2};
  return {ranks, 1};
}

// Relative tolerance. Summing over up to 4 parts instead of one adds a few float32 roundings (6e-8 each) in sums of at
// most 30 terms. A power and a root multiply a relative error by the order and by its inverse.
constexpr double kTolerance = 2e-6;

class ClipGradNorm : public testing::TestWithParam<int> {};

TEST_P(ClipGradNorm, IsThatOfTheWholeGradients) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, shape_for(world.size()), {"fsdp", "tp"});
    for (const double order : {1.0, 2.0, 3.5, 0.5, -1.0, 0.0, kInf, -kInf}) {
      // Zeros with a negative order make the norm 0, which would hide the rest.
      auto cases = make_cases();
      if (order < 0) cases[4].whole.fill_(0.5);
      const auto expected = expected_norm(cases, order).item<double>();
      EXPECT_GT(expected, 0);
      auto grads = shard(cases, mesh);
      const auto found = optim::clip_grad_norm(grads, 0.25 * expected, order);
      EXPECT_EQ(found.dim(), 0);
      EXPECT_EQ(found.scalar_type(), at::kFloat);
      EXPECT_NEAR(found.item<double>() / expected, 1, kTolerance) << "order " << order;
      // clip_coef's 1e-6 is part of the formula.
      const double factor = 0.25 * expected / (expected + 1e-6);
      for (auto& c : cases) c.whole = c.whole.mul(factor);
      const auto clipped = shard(cases, mesh);
      for (std::size_t i = 0; i < cases.size(); ++i)
        EXPECT_TRUE(grads[i].grad.allclose(clipped[i].grad, kTolerance, 0)) << "order " << order << ", gradient " << i;
    }
  });
}

TEST_P(ClipGradNorm, LeavesSmallGradientsAlone) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, shape_for(world.size()), {"fsdp", "tp"});
    const auto cases = make_cases();
    auto grads = shard(cases, mesh);
    optim::clip_grad_norm(grads, 1e6);
    const auto before = shard(cases, mesh);
    for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_TRUE(grads[i].grad.equal(before[i].grad));
  });
}

// Only one rank's part is infinite; every rank learns of it.
TEST_P(ClipGradNorm, NonfinitePassesOrThrowsOnEveryRank) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, shape_for(world.size()), {"fsdp", "tp"});
    for (const double order : {2.0, 3.0, kInf}) {
      auto grads = shard(make_cases(), mesh);
      if (world.rank() == 0) grads[2].grad[0][0] = kInf;
      EXPECT_TRUE(std::isinf(optim::total_norm(grads, order).item<double>()));
      EXPECT_THROW(optim::total_norm(grads, order, /*error_if_nonfinite=*/true), Error);
      if (world.rank() == 0) grads[2].grad[0][0] = std::nan("");
      EXPECT_TRUE(std::isnan(optim::total_norm(grads, order).item<double>()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ClipGradNorm, testing::Values(1, 2, 4));

// Each rank has two gradients of its own, and one of a parameter that the first rank owns.
TEST_P(ClipGradNorm, OfAModelInPartsCountsCopiesOnce) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto tied = at::randn({6}, at::detail::createCPUGenerator(99), at::kFloat);
    const auto own = [](int rank, int index) {
      return at::randn({5}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(10 * rank + index)), at::kFloat);
    };
    std::vector<Case> whole = {{tied, {}}};
    for (int rank = 0; rank < world.size(); ++rank)
      for (const int index : {1, 2}) whole.push_back({own(rank, index), {}});
    const auto expected = expected_norm(whole, 2).item<double>();

    const auto max_norm = 0.25 * expected;
    const auto part =
        optim::clip_factor({{own(world.rank(), 1), {}}, {tied, {}}, {own(world.rank(), 2), {}}}, max_norm);
    // Undefined where each gradient is the rank's own.
    const at::Tensor owned = world.rank() == 0 ? at::Tensor() : at::tensor({1.0F, 0.0F, 1.0F});
    const auto all = optim::clip_factor_over(part, {world.group(), owned}, max_norm);
    EXPECT_NEAR(all.norm.item<double>() / expected, 1, kTolerance);
    EXPECT_NEAR(all.factor.item<double>() * (expected + 1e-6) / max_norm, 1, kTolerance);
    EXPECT_TRUE(all.each.equal(part.each));
  });
}

// Only the last rank's part is not finite; every rank learns of it.
TEST_P(ClipGradNorm, OfAModelInPartsIsNotFiniteOnEveryRank) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto grad = at::full({3}, world.rank() == world.size() - 1 ? std::nan("") : 1.0, at::kFloat);
    const auto all = optim::clip_factor_over(optim::clip_factor({{grad, {}}}, 1.0), {world.group(), {}}, 1.0);
    EXPECT_TRUE(std::isnan(all.norm.item<double>()));
  });
}

// Derives the groups from each parameter's sharding: over one mesh or another, split by both axes in either order, by
// one, by none.
TEST(TotalNorm, OfAnOptimizerWhoseParametersLieOnTwoMeshes) {
  test::on_ranks(4, [](dist::World& world) {
    using dist::Replicate, dist::Shard, dist::StridedShard;
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    const auto fsdp = mesh.slice({"fsdp"}), tp = mesh.slice({"tp"});
    struct Lie {
      const dist::DeviceMesh& mesh;
      std::vector<dist::Placement> placements;
      std::vector<std::string> cut_by;
    };
    const std::vector<Lie> lies = {{fsdp, {Shard{0}}, {"fsdp"}},
                                   {mesh, {StridedShard{0, 2}, Shard{0}}, {"fsdp", "tp"}},
                                   {mesh, {Shard{0}, Shard{1}}, {"fsdp", "tp"}},
                                   {mesh, {Shard{0}, Replicate{}}, {"fsdp"}},
                                   {tp, {Shard{1}}, {"tp"}},
                                   {mesh, {Replicate{}, Replicate{}}, {}},
                                   {mesh, {Replicate{}, Shard{0}}, {"tp"}}};
    std::vector<optim::TrainedParameter> params;
    std::vector<Case> wholes;
    const auto add = [&](const at::Tensor& part, const at::Tensor& grad, std::optional<dist::Sharding> sharding) {
      params.push_back({"p" + std::to_string(params.size()), part, std::move(sharding)});
      params.back().tensor.mutable_grad() = grad;
    };
    for (const auto& [on, placements, cut_by] : lies) {
      const auto seed = static_cast<std::uint64_t>(params.size() + 1);
      wholes.push_back({at::randn({7, 5}, at::detail::createCPUGenerator(seed), at::kFloat), cut_by});
      const auto grad = dist::DTensor::distribute(wholes.back().whole, on, placements);
      add(at::zeros_like(grad.to_local()), grad.to_local(), grad.sharding());
      std::vector<dist::ProcessGroup*> expected;
      for (const auto& axis : cut_by) expected.push_back(&mesh.group(axis));
      EXPECT_EQ(optim::groups_that_cut(grad.sharding()), expected) << seed;
    }
    wholes.push_back({at::full({2, 2}, 3.0), {}});  // without a sharding
    add(at::zeros({2, 2}), wholes.back().whole, std::nullopt);
    const optim::AdamW optimizer(params, {});
    const auto expected = expected_norm(wholes, 2).item<double>();
    EXPECT_NEAR(optim::total_norm(optimizer.sharded_grads()).item<double>() / expected, 1, kTolerance);
  });
}

TEST(TotalNorm, TakesMixedDtypesUndefinedAndNone) {
  const auto bf16 = at::full({4}, 0.5, at::kBFloat16);
  const auto norm = optim::total_norm({{at::full({4}, 2.0), {}}, {at::Tensor(), {}}, {bf16, {}}});
  EXPECT_FLOAT_EQ(norm.item<float>(), std::sqrt(17.0f));
  EXPECT_EQ(optim::total_norm({}).item<float>(), 0);
}

// Checks, operation by operation, the order on which parity with FSDP2 depends.
TEST(TotalNorm, OnOneGroupSquaresSumsAndTakesRoots) {
  test::on_ranks(2, [](dist::World& world) {
    const auto make = [&](std::uint64_t seed) {
      return at::randn({50}, at::detail::createCPUGenerator(seed + static_cast<std::uint64_t>(world.rank())),
                       at::kFloat);
    };
    const std::vector<at::Tensor> parts = {make(1), make(3), make(5)};
    auto norms = at::stack({at::linalg_vector_norm(parts[0]), at::linalg_vector_norm(parts[1]),
                            at::linalg_vector_norm(parts[2])})
                     .square();
    world.group().all_reduce(norms, dist::ReduceOp::kSum).wait();
    const auto expected = at::linalg_vector_norm(norms.sqrt(), 2);
    std::vector<optim::ShardedGrad> grads;
    for (const auto& part : parts) grads.push_back({part, {&world.group()}});
    EXPECT_TRUE(optim::total_norm(grads).equal(expected));
  });
}

}  // namespace
}  // namespace titan
