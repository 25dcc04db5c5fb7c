// Tests DTensor against arithmetic on full tensors, over real Gloo ranks, and boxes against torch.distributed.tensor's.
#include "distributed/tensor/dtensor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/message_of.h"
#include "tests/support/run_ranks.h"

namespace titan::dist {
namespace {

using testing::HasSubstr;
using Placements = std::vector<Placement>;

template <typename T>
std::vector<T> numbers(const std::string& text) {
  std::vector<T> out;
  for (const auto& part : split(text, ',')) out.push_back(static_cast<T>(std::stoll(part)));
  return out;
}

// Reads "R", "S1" or "SS0/2".
Placement placement_of(const std::string& text) {
  if (text == "R") return Replicate{};
  const auto slash = text.find('/');
  if (slash == std::string::npos) return Shard{std::stoll(text.substr(1))};
  return StridedShard{std::stoll(text.substr(2, slash - 2)), std::stoll(text.substr(slash + 1))};
}

TEST(ShardingBoxes, AreTorchsOwn) {
  std::ifstream table(TITAN_SOURCE_DIR "/tests/distributed/tensor_parallel/dtensor_boxes.txt");
  int rows = 0;
  for (std::string line; std::getline(table, line); ++rows) {
    std::vector<std::string> fields;
    for (const auto& field : split(line, '|')) fields.emplace_back(trim(field));
    ASSERT_EQ(fields.size(), 6u) << line;
    Placements placements;
    for (const auto& text : split(fields[2], ',')) placements.push_back(placement_of(text));
    const auto spec =
        box_of(numbers<std::int64_t>(fields[0]), numbers<int>(fields[1]), numbers<int>(fields[3]), placements);
    EXPECT_EQ(spec.offset, numbers<std::int64_t>(fields[4])) << line;
    EXPECT_EQ(spec.local_shape, numbers<std::int64_t>(fields[5])) << line;
  }
  EXPECT_EQ(rows, 1135);
}

// Returns small integers, so that every sum is exact in float32 in any order.
at::Tensor term_of(at::IntArrayRef shape, int index) {
  return at::randint(-50, 50, shape, at::detail::createCPUGenerator(static_cast<std::uint64_t>(index) + 1), at::kFloat);
}

at::Tensor reduced(const std::vector<at::Tensor>& terms, PartialOp op) {
  const auto all = at::stack(terms);
  switch (op) {
    case PartialOp::kSum:
      return all.sum(0);
    case PartialOp::kAvg:
      return all.sum(0).div(static_cast<double>(terms.size()));
    case PartialOp::kMax:
      return all.amax(0);
    case PartialOp::kMin:
      return all.amin(0);
  }
  throw InternalError("no such operation");
}

// A DTensor and its full tensor. Every coordinate along a Partial mesh axis has its own term.
struct Made {
  DTensor tensor;
  at::Tensor whole;
};

Made make(at::IntArrayRef shape, const DeviceMesh& mesh, const Placements& placements) {
  // Reduces all terms, over the last partial mesh axis first.
  auto pieces = placements;
  std::function<at::Tensor(std::size_t, int)> value = [&](std::size_t m, int index) -> at::Tensor {
    if (m == placements.size()) return term_of(shape, index);
    const auto* partial = std::get_if<Partial>(&placements[m]);
    if (!partial) return value(m + 1, index);
    std::vector<at::Tensor> terms;
    for (int r = 0; r < mesh.shape()[m]; ++r) terms.push_back(value(m + 1, index * 10 + r));
    return reduced(terms, partial->op);
  };
  int mine = 0;
  for (std::size_t m = 0; m < placements.size(); ++m) {
    if (!std::holds_alternative<Partial>(placements[m])) continue;
    mine = mine * 10 + mesh.coordinate()[m];
    pieces[m] = Replicate{};
  }
  const auto local = DTensor::distribute(term_of(shape, mine), mesh, pieces).to_local();
  return {DTensor::from_local(local, mesh, placements, {.global_shape = shape.vec()}), value(0, 0)};
}

// Redistributes from each of `sources` to each of `targets`, and checks that every rank's piece equals that of the full
// tensor, bit for bit.
void expect_redistributes(at::IntArrayRef shape, const DeviceMesh& mesh, const std::vector<Placements>& sources,
                          const std::vector<Placements>& targets) {
  for (const auto& source : sources) {
    const auto [tensor, whole] = make(shape, mesh, source);
    EXPECT_TRUE(tensor.full_tensor().equal(whole)) << tensor.text() << "\n" << tensor.full_tensor() << "\n" << whole;
    for (const auto& target : targets) {
      const auto moved = tensor.redistribute(target);
      const auto expected = DTensor::distribute(whole, mesh, target);
      EXPECT_EQ(moved.placements(), target);
      EXPECT_EQ(moved.spec(), expected.spec());
      EXPECT_TRUE(moved.to_local().equal(expected.to_local()))
          << tensor.text() << " to " << placements_text(target) << "\n"
          << moved.to_local() << "\n"
          << expected.to_local();
      EXPECT_TRUE(moved.to_local().is_contiguous());
    }
  }
}

class OneMeshDim : public testing::TestWithParam<int> {};

TEST_P(OneMeshDim, MovesBetweenAllPlacements) {
  test::on_ranks(GetParam(), [](World& world) {
    const auto mesh = DeviceMesh::init(world, {world.size()}, {"tp"});
    const std::vector<Placements> targets = {{Replicate{}}, {Shard{0}}, {Shard{1}}};
    auto sources = targets;
    for (const auto op : {PartialOp::kSum, PartialOp::kAvg, PartialOp::kMax, PartialOp::kMin})
      sources.push_back({Partial{op}});
    // Even and uneven at each world size, fewer rows than ranks, and none at all.
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{12, 4}, {7, 5}, {2, 13}, {1, 1}, {0, 3}})
      expect_redistributes(shape, mesh, sources, targets);
    expect_redistributes({5, 3, 4}, mesh, {{Shard{2}}, {Partial{}}}, {{Shard{1}}, {Shard{2}}});
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OneMeshDim, testing::Values(1, 2, 3, 4));

std::vector<Placements> two_dim_placements(const DeviceMesh& mesh) {
  std::vector<Placements> all;
  const Placements kinds = {Replicate{}, Shard{0}, Shard{1}};
  for (const auto& outer : kinds) {
    for (const auto& inner : kinds) all.push_back({outer, inner});
  }
  for (const std::int64_t d : {0, 1}) all.push_back({StridedShard{d, mesh.shape()[1]}, Shard{d}});
  return all;
}

TEST(TwoMeshDims, MoveBetweenAllPlacements) {
  test::on_ranks(4, [](World& world) {
    const auto mesh = DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    const auto targets = two_dim_placements(mesh);
    auto sources = targets;
    for (const auto op : {PartialOp::kSum, PartialOp::kAvg, PartialOp::kMax, PartialOp::kMin}) {
      sources.push_back({Partial{op}, Partial{op}});
      sources.push_back({Partial{op}, Shard{0}});
      sources.push_back({Shard{1}, Partial{op}});
      sources.push_back({Replicate{}, Partial{op}});
    }
    sources.push_back({Partial{PartialOp::kAvg}, Partial{}});
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{8, 4}, {7, 5}, {3, 1}})
      expect_redistributes(shape, mesh, sources, targets);
  });
}

TEST(TwoMeshDims, OfUnequalSizes) {
  test::on_ranks(3, [](World& world) {
    for (const auto& shape : std::vector<std::vector<int>>{{1, 3}, {3, 1}}) {
      const auto mesh = DeviceMesh::init(world, shape, {"fsdp", "tp"});
      const auto all = two_dim_placements(mesh);
      expect_redistributes({7, 4}, mesh, all, all);
    }
  });
}

// StridedShard exists because tensor parallelism splits first, and fully_shard splits the result.
TEST(TwoMeshDims, StridedShardIsAChunkOfAChunk) {
  test::on_ranks(4, [](World& world) {
    const auto mesh = DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    const auto whole = at::arange(7);
    const auto by_tp = DTensor::distribute(whole, mesh.slice({"tp"}), {Shard{0}});
    const auto both = by_tp.sharding().cut_again(mesh.slice({"fsdp"}), 0);
    EXPECT_EQ(both.placements, (Placements{StridedShard{0, 2}, Shard{0}}));
    EXPECT_EQ(both.mesh.axis_names(), mesh.axis_names());
    EXPECT_EQ(both.mesh.ranks(), mesh.ranks());
    const auto mine = DTensor::distribute(by_tp.to_local(), mesh.slice({"fsdp"}), {Shard{0}}).to_local();
    EXPECT_TRUE(mine.equal(DTensor::distribute(whole, both.mesh, both.placements).to_local()));
    EXPECT_TRUE(DTensor(mine, both).full_tensor().equal(whole));
    // A split along another dim needs no StridedShard.
    const auto matrix = Sharding::of({4, 6}, mesh.slice({"tp"}), {Shard{-1}});
    EXPECT_EQ(matrix.cut_again(mesh.slice({"fsdp"}), 0).placements, (Placements{Shard{0}, Shard{1}}));
  });
}

TEST(Redistribute, CutsWithoutCommunication) {
  const auto world = World::fake(4);  // cannot send anything
  const auto mesh = DeviceMesh::init(*world, {2, 2}, {"fsdp", "tp"});
  const auto whole = at::arange(10).view({5, 2});
  const auto replicated = DTensor::distribute(whole, mesh, {Replicate{}, Replicate{}});
  const auto cut = replicated.redistribute({Shard{0}, Shard{-1}});
  EXPECT_TRUE(cut.to_local().equal(whole.narrow(0, 0, 3).narrow(1, 0, 1)));
  // Rows of a larger tensor do not keep it alive.
  const auto rows = replicated.redistribute({Shard{0}, Replicate{}});
  EXPECT_EQ(rows.to_local().storage().nbytes(), rows.to_local().nbytes());
  EXPECT_THROW(cut.full_tensor(), InternalError);
}

TEST(Mistakes, AreNamed) {
  const auto world = World::fake(4);
  const auto mesh = DeviceMesh::init(*world, {2, 2}, {"fsdp", "tp"});
  const auto whole = at::zeros({5, 2});
  const auto distribute = [&](Placements placements) {
    return test::message_of<DistError>([&] { DTensor::distribute(whole, mesh, placements); });
  };
  EXPECT_THAT(distribute({Shard{0}}), HasSubstr("a mesh with 2 axes needs as many placements"));
  EXPECT_THAT(distribute({Replicate{}, Shard{2}}), HasSubstr("has no dim 2"));
  EXPECT_THAT(distribute({Replicate{}, Shard{-3}}), HasSubstr("has no dim -3"));
  EXPECT_THAT(distribute({StridedShard{0, 3}, Shard{0}}),
              HasSubstr("shape [5, 2] and placements (StridedShard(0, split_factor=3), Shard(0))"));
  EXPECT_THAT(distribute({StridedShard{0, 2}, Shard{1}}), HasSubstr("into 1 pieces"));
  EXPECT_THAT(distribute({Partial{}, Shard{0}}), HasSubstr("(Partial(sum), Shard(0))"));
  const auto term = DTensor::from_local(whole, mesh, {Partial{PartialOp::kMax}, Replicate{}});
  EXPECT_EQ(term.text(), "DTensor [5, 2] Float over (fsdp=2, tp=2), (Partial(max), Replicate())");
  EXPECT_THAT(test::message_of<DistError>([&] {
                term.redistribute({Partial{}, Replicate{}});
              }),
              HasSubstr("comes from computation"));
  EXPECT_THAT(test::message_of<DistError>([&] {
                DTensor::from_local(whole, mesh, {Partial{PartialOp::kMax}, Partial{}});
              }),
              HasSubstr("which is reduced first"));
  const auto integers = DTensor::from_local(at::zeros({2}, at::kLong), mesh, {Partial{PartialOp::kAvg}, Replicate{}});
  EXPECT_THAT(test::message_of<DistError>([&] { integers.full_tensor(); }), HasSubstr("no average"));
  EXPECT_THAT(test::message_of<DistError>([&] {
                DTensor::from_local(whole, mesh, {Shard{0}, Replicate{}}, {.global_shape = {{5, 2}}});
              }),
              HasSubstr("(fsdp 0, tp 0): the local tensor has shape [5, 2], but the piece here of [5, 2] under "
                        "(Shard(0), Replicate()) has shape [3, 2]"));
}

TEST(Meshes, ConcatenateWhenSlicedFromOne) {
  test::on_ranks(4, [](World& world) {
    const auto mesh = DeviceMesh::init(world, {2, 1, 2}, {"dp_replicate", "fsdp", "tp"});
    const auto dp = mesh.flatten({"dp_replicate", "fsdp"}, "dp");
    const auto both = DeviceMesh::concatenate(dp, mesh.slice({"tp"}));
    EXPECT_EQ(both.axis_names(), (std::vector<std::string>{"dp", "tp"}));
    EXPECT_EQ(both.shape(), (std::vector<int>{2, 2}));
    EXPECT_EQ(both.ranks(), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(both.coordinate(), (std::vector<int>{world.rank() / 2, world.rank() % 2}));
    EXPECT_EQ(DeviceMesh::concatenate(mesh.slice({"tp"}), dp).ranks(), (std::vector<int>{0, 2, 1, 3}));
    EXPECT_EQ(&both.group("tp"), &mesh.group("tp"));
    EXPECT_THAT(test::message_of<DistError>([&] { DeviceMesh::concatenate(dp, mesh.slice({"fsdp"})); }),
                HasSubstr("overlap"));
    const auto other = DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    EXPECT_THAT(
        test::message_of<DistError>([&] { DeviceMesh::concatenate(mesh.slice({"fsdp"}), other.slice({"tp"})); }),
        HasSubstr("no common parent"));
  });
}

TEST(FromLocal, InfersTheWholeShape) {
  test::on_ranks(4, [](World& world) {
    const auto mesh = DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    const auto local = at::full({3, 5}, static_cast<double>(world.rank()));
    const auto tensor = DTensor::from_local(local, mesh, {Shard{0}, Shard{0}}, {.run_check = true});
    EXPECT_EQ(tensor.shape(), (std::vector<std::int64_t>{12, 5}));
    EXPECT_TRUE(tensor.full_tensor().select(1, 0).equal(at::arange(4, at::kFloat).repeat_interleave(3)));
    EXPECT_TRUE(tensor.to_local().is_alias_of(local));
  });
}

TEST(FromLocal, NamesTheRankThatDisagrees) {
  test::on_ranks(4, [](World& world) {
    const auto mesh = DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    const bool odd = world.rank() == 2;
    const auto checked = [&](const at::Tensor& local, Placements placements, std::vector<std::int64_t> shape) {
      return test::message_of<DistError>(
          [&] { DTensor::from_local(local, mesh, placements, {.global_shape = shape, .run_check = true}); });
    };
    // The same message on every rank, also on those that share no mesh axis with rank 2.
    EXPECT_THAT(checked(at::zeros({4, 2}, odd ? at::kDouble : at::kFloat), {Replicate{}, Shard{1}}, {4, 4}),
                HasSubstr("rank 2: expected Float of global shape [4, 4] under (Replicate(), Shard(1)) like rank 0, "
                          "found Double"));
    EXPECT_THAT(checked(at::zeros({odd ? 3 : 4, 2}), {Replicate{}, Shard{1}}, {4, 4}),
                HasSubstr("rank 2: expected a local tensor of shape [4, 2], found [3, 2]"));
    auto values = at::arange(4).view({2, 2}).to(at::kFloat) + world.rank() % 2 * 10;
    if (odd) values[1][0] = 7.5;
    EXPECT_THAT(checked(values, {Replicate{}, Shard{1}}, {2, 4}),
                HasSubstr("rank 2: replicated values differ: expected 2.000000 at [1, 0] like rank 0, found 7.500000"));
    EXPECT_EQ(checked(values, {Shard{0}, Shard{1}}, {4, 4}), "no error");
    EXPECT_EQ(checked(at::full({2, 2}, world.rank() % 2), {Replicate{}, Shard{1}}, {2, 4}), "no error");
    EXPECT_EQ(checked(at::full({2, 2}, world.rank() / 2), {Shard{0}, Replicate{}}, {4, 2}), "no error");
  });
}

}  // namespace
}  // namespace titan::dist
