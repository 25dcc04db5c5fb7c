// Tests process groups and meshes over real Gloo ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "base/process/common_error.h"
#include "distributed/host_staged_backend.h"
#include "distributed/mesh.h"
#include "distributed/parallel_dims.h"
#include "distributed/process_group_gloo.h"
#include "tests/support/guard.h"
#include "tests/support/run_ranks.h"

namespace titan {
namespace {

TEST(Collectives, GiveTheSumsAndOrdersThatTheySay) {
  test::on_ranks(3, [](dist::World& world) {
    auto& group = world.group();
    const int rank = group.rank();
    auto gathered = at::empty({6}, at::kLong);
    group.all_gather(gathered, at::tensor({rank * 10, rank * 10 + 1}, at::kLong)).wait();
    EXPECT_TRUE(gathered.equal(at::tensor({0, 1, 10, 11, 20, 21}, at::kLong)));

    auto scattered = at::empty({2});
    group.reduce_scatter(scattered, at::arange(6, at::kFloat) * (rank + 1), dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(scattered.equal(at::tensor({2.0f * rank, 2.0f * rank + 1}) * 6)) << scattered;

    auto bf16 = at::empty({2}, at::kBFloat16);
    group.reduce_scatter(bf16, at::ones({6}, at::kBFloat16), dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(bf16.equal(at::full({2}, 3, at::kBFloat16)));

    auto largest = at::tensor({rank}, at::kLong);
    group.all_reduce(largest, dist::ReduceOp::kMax).wait();
    EXPECT_EQ(largest.item<std::int64_t>(), 2);

    const std::string mine(static_cast<std::size_t>(rank), 'x');
    EXPECT_EQ(group.all_gather_bytes(mine), (std::vector<std::string>{"", "x", "xx"}));
    EXPECT_EQ(group.broadcast_bytes(rank == 1 ? "from one" : "", 1), "from one");
  });
}

// Ignores shapes over sockets as in shared memory: only the number of elements counts. Two ranks in two threads.
TEST(Collectives, TakeTensorsOfAnyShape) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto as_rank = [&](int rank) {
    const auto gloo = dist::make_gloo_backend(store, rank, 2, test::guard(30), /*local_only=*/true);
    dist::ProcessGroup group("gloo", {0, 1}, rank, gloo, {});
    const auto terms = at::arange(12, at::kFloat).view({2, 3, 2});
    const auto sum = (terms[rank] * 2).flatten();
    auto part = at::empty({3, 2});
    group.reduce_scatter(part, terms, dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(part.flatten().equal(sum)) << part;
    auto of_flat = at::empty({1, 2, 3});
    group.reduce_scatter(of_flat, terms.flatten(), dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(of_flat.flatten().equal(sum)) << of_flat;
    auto whole = at::empty({2, 3, 2});
    group.all_gather(whole, terms[rank]).wait();
    EXPECT_TRUE(whole.equal(terms)) << whole;
    auto from_flat = at::empty({3, 4});
    group.all_gather(from_flat, terms[rank].flatten()).wait();
    EXPECT_TRUE(from_flat.flatten().equal(terms.flatten())) << from_flat;
  };
  std::thread other([&] { as_rank(1); });
  as_rank(0);
  other.join();
}

// Uses CPU tensors, for which only the copies differ from Gloo's own. Two ranks in two threads.
TEST(HostStagedBackend, GivesWhatGlooGives) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto as_rank = [&](int rank) {
    const auto gloo = dist::make_gloo_backend(store, rank, 2, test::guard(30), /*local_only=*/true);
    dist::ProcessGroup group("staged", {0, 1}, rank, dist::make_host_staged_backend(gloo), {});
    // The input is a part of the output, as in FSDP.
    auto gathered = at::full({4}, -1.0f);
    auto own = gathered.narrow(0, 2 * rank, 2);
    own.copy_(at::tensor({rank * 10.0f, rank * 10.0f + 1}));
    group.all_gather(gathered, own).wait();
    EXPECT_TRUE(gathered.equal(at::tensor({0.0f, 1.0f, 10.0f, 11.0f}))) << gathered;
    auto scattered = at::empty({2});
    const auto input = at::arange(4, at::kFloat) * (rank + 1);
    group.reduce_scatter(scattered, input, dist::ReduceOp::kSum).wait();
    EXPECT_TRUE(scattered.equal(at::tensor({2.0f * rank, 2.0f * rank + 1}) * 3)) << scattered;
    EXPECT_TRUE(input.equal(at::arange(4, at::kFloat) * (rank + 1))) << "the input was changed";
    auto largest = at::tensor({rank, 5 - rank}, at::kLong);
    group.all_reduce(largest, dist::ReduceOp::kMax).wait();
    EXPECT_TRUE(largest.equal(at::tensor({1, 5}, at::kLong))) << largest;
    auto sent = at::full({3}, static_cast<float>(rank));
    group.broadcast(sent, 1).wait();
    EXPECT_TRUE(sent.equal(at::ones({3}))) << sent;
  };
  std::thread other([&] { as_rank(1); });
  as_rank(0);
  other.join();
}

TEST(Mesh, IsRowMajorWithTheLastAxisFastest) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"dp_replicate", "fsdp"});
    const int rank = world.rank();
    EXPECT_EQ(mesh.local_rank("dp_replicate"), rank / 2);
    EXPECT_EQ(mesh.local_rank("fsdp"), rank % 2);
    EXPECT_EQ(mesh.group("fsdp").ranks(), (rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3}));
    EXPECT_EQ(mesh.group("dp_replicate").ranks(), (rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3}));
    const auto batch = mesh.flatten({"dp_replicate", "fsdp"}, "batch");
    EXPECT_EQ(batch.size(), 4);
    EXPECT_EQ(batch.local_rank("batch"), rank);
    EXPECT_THROW(mesh.group(), DistError);
    EXPECT_THROW(mesh.slice({"fsdp", "dp_replicate"}), DistError);
    EXPECT_THROW(mesh.slice({"tp"}), DistError);
    auto one = at::ones({1});
    mesh.group("fsdp").all_reduce(one, dist::ReduceOp::kSum).wait();
    EXPECT_EQ(one.item<float>(), 2);
  });
}

TEST(Failure, OfOneRankEndsTheOthersWithItsReason) {
  // Rank 1 reports a failure and leaves; rank 0, which waits for nothing, must be ended by its watch with exit code 3.
  if (test::is_rank() && std::string(std::getenv("TITAN_TEST_RANK")) == "0") {
    const auto forever = [](dist::World&) {
      alarm(static_cast<unsigned>(test::guard(50).count() / 1000));  // ends it by a signal
      for (;;) pause();
    };
    EXPECT_EXIT(test::on_ranks(2, forever), testing::ExitedWithCode(3), "rank 0: stops: rank 1: out of milk");
    return;
  }
  test::on_ranks(2, [](dist::World& world) {
    world.report_failure("out of milk\nsecond line");
    std::_Exit(0);  // at once, as the program does; its reason stays in rank 0's store
  });
}

// torchrun ends all ranks as soon as the first one has ended. A rank that left silently before the failed one printed
// its reason would take the only message with it.
TEST(Failure, ThatAnotherRankSaysIsLeftToItUntilItHasEnded) {
  test::on_ranks(2, [](dist::World& world) {
    const auto file = std::filesystem::temp_directory_path() / "said";
    if (world.report_failure("out of milk")) {
      EXPECT_TRUE(std::filesystem::exists(file));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      std::ofstream(file) << "out of milk";
    }
    std::fflush(nullptr);
    std::_Exit(testing::Test::HasFailure());
  });
}

// Whichever rank comes to it first, an error that all ranks have alike is printed by rank 0, once and with all its
// lines, and every rank ends with its code: also one that never comes to it itself, which its watch ends.
void fail_alike(int late_rank) {
  const auto ends = test::ends_of_ranks(2, [late_rank](dist::World& world) {
    alarm(static_cast<unsigned>(test::guard(50).count() / 1000));  // ends it by a signal
    const std::string reason = common_error("out of milk\nin the fridge\nin the cellar", kExitBadInput);
    while (world.rank() == late_rank) pause();
    if (!world.report_failure(reason)) std::fputs(("rank 0: " + reason).c_str(), stderr);  // as the program does
    std::fflush(nullptr);
    std::_Exit(kExitBadInput);
  });
  if (test::is_rank()) return;
  for (const auto& end : ends) EXPECT_EQ(end.how, "exit code 2") << end.said;
  const auto place = ends[0].said.find("rank 0: out of milk\nin the fridge\nin the cellar");
  EXPECT_NE(place, std::string::npos) << ends[0].said;
  EXPECT_EQ(ends[0].said.find("milk", place + 18), std::string::npos) << ends[0].said;
  EXPECT_EQ(ends[1].said.find("milk"), std::string::npos) << ends[1].said;
}

TEST(Failure, OfAllRanksIsSaidByRank0ThatComesLate) { fail_alike(0); }
TEST(Failure, OfAllRanksIsNotSaidByARankThatComesLate) { fail_alike(1); }

TEST(CommonErrors, AreKnownByTheirFirstLine) {
  common_error("out of milk\nin the fridge", kExitBadInput);
  EXPECT_EQ(code_of_common_error("the end: out of milk; sorry\nsecond line"), kExitBadInput);
  EXPECT_FALSE(code_of_common_error("first line\nout of milk"));
}

// TorchTitan's order, from the outermost: pp, dp_replicate, dp_shard, cp, tp. Rank 0's coordinate is 0 on every axis.
TEST(Meshes, HaveTheRanksOfEveryView) {
  const dist::ParallelDims dims{.pp = 2, .dp_replicate = 3, .dp_shard = 2, .cp = 2, .tp = 2, .world_size = 48};
  const auto world = dist::World::fake(48);
  const auto meshes = dist::Meshes::build(*world, dims);
  EXPECT_EQ(meshes.tp.group().ranks(), (std::vector<int>{0, 1}));
  EXPECT_EQ(meshes.cp.group().ranks(), (std::vector<int>{0, 2}));
  EXPECT_EQ(meshes.pp.group().ranks(), (std::vector<int>{0, 24}));
  EXPECT_EQ(meshes.batch.group().ranks(), (std::vector<int>{0, 4, 8, 12, 16, 20}));
  EXPECT_EQ(meshes.loss.group().ranks(), (std::vector<int>{0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22,
                                                           24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46}));
  EXPECT_EQ(meshes.same_stage.group().ranks(), (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}));
  EXPECT_EQ(meshes.rows.group().ranks(), (std::vector<int>{0, 2, 24, 26}));
  EXPECT_EQ(meshes.fsdp.axis_names(), (std::vector<std::string>{"dp_replicate", "fsdp"}));
  EXPECT_EQ(meshes.fsdp.group("fsdp").ranks(), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(meshes.fsdp.group("dp_replicate").ranks(), (std::vector<int>{0, 8, 16}));
  // fully_shard splits again what tensor parallelism has split: both are views of one grid.
  EXPECT_EQ(dist::DeviceMesh::concatenate(meshes.fsdp, meshes.tp).shape(), (std::vector<int>{3, 4, 2}));
  auto wrong = dims;
  wrong.tp = 4;
  EXPECT_THROW(dist::Meshes::build(*world, wrong), DistError);
}

TEST(Meshes, OfOneAxisAreTheWorldAndConnectNobodyElse) {
  test::on_ranks(2, [](dist::World& world) {
    const auto meshes = dist::Meshes::build(world, {.dp_shard = 2, .world_size = 2});
    EXPECT_EQ(&meshes.batch.group(), &world.group());
    EXPECT_EQ(&meshes.loss.group(), &world.group());
    EXPECT_EQ(&meshes.fsdp.group(), &world.group());
    for (const auto* view : {&meshes.cp, &meshes.tp, &meshes.pp}) EXPECT_EQ(view->group().size(), 1);
    // An axis that no view names has no group.
    const auto grid = dist::DeviceMesh::layout(world, {2, 1}, {"a", "b"});
    EXPECT_THROW(grid.group("a"), InternalError);
    EXPECT_EQ(&grid.slice({"a"}).group(), &world.group());
  });
}

TEST(RunShape, IsWhatTheConfigurationMeansForAStep) {
  config::JobConfig config;
  config.parallelism.data_parallel_replicate_degree = 2;
  config.training.local_batch_size = 3;
  config.training.global_batch_size = 48;
  const auto shape = dist::RunShape::of(config, 8);
  EXPECT_EQ(shape.dims.dp_shard, 4);
  EXPECT_EQ(shape.dims.batch(), 8);
  EXPECT_EQ(shape.accumulation_steps, 2);
  EXPECT_EQ(shape.sequences_per_step, 48);
  EXPECT_THROW(dist::RunShape::of(config, 7), ConfigError);
}

TEST(World, AFakeOneMakesMeshesAndSendsNothing) {
  const auto world = dist::World::fake(256);
  const auto mesh = dist::DeviceMesh::init(*world, {8, 32}, {"dp_replicate", "fsdp"});
  EXPECT_EQ(mesh.group("fsdp").size(), 32);
  auto tensor = at::ones({1});
  EXPECT_THROW((void)mesh.group("fsdp").all_reduce(tensor, dist::ReduceOp::kSum), InternalError);
  EXPECT_THROW(dist::DeviceMesh::init(*world, {8, 31}, {"a", "b"}), DistError);
}

}  // namespace
}  // namespace titan
