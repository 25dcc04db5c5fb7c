// Tests what fully_shard holds at which time, and its errors for wrong calls.
#include "parallel/fsdp/fsdp_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>

#include "base/error.h"
#include "nn/ops/weight_gradients.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/optimizer_state.h"
#include "tests/support/tiny_net.h"

namespace titan {
namespace {

using test::loss_of;
using test::one_dim;
using test::optimizer_of;
using test::tokens_of;
using Net = test::TinyNet;

TEST(FullyShardState, UnshardsAndReshardsOnRequest) {
  test::on_ranks(2, [](dist::World& world) {
    const auto shared = test::sharded_net(one_dim(world));
    Net& net = *shared;
    fsdp::unshard(*net.embedding);  // before any forward
    EXPECT_EQ(net.embedding->weight.size(0), 13);
    auto whole = net.embedding->weight.detach().clone();
    const auto mine = whole.clone();
    world.group().broadcast(whole, 0).wait();
    EXPECT_TRUE(whole.equal(mine));
    fsdp::reshard(*net.embedding);
    EXPECT_EQ(net.embedding->weight.size(0), world.rank() == 0 ? 7 : 6);
    EXPECT_TRUE(loss_of(net, tokens_of(0, 0)).isfinite().item<bool>());
  });
}

TEST(FullyShardState, IsFreedBetweenSteps) {
  test::on_ranks(2, [](dist::World& world) {
    const auto shared = test::sharded_net(one_dim(world));
    Net& net = *shared;
    const auto l = loss_of(net, tokens_of(0, world.rank()));
    torch::autograd::backward({l}, {});
    for (auto* state : fsdp::FsdpState::all_below(net)) {
      for (const auto* param : state->group()->params()) {
        EXPECT_FALSE(param->is_unsharded()) << param->fqn();
        EXPECT_EQ(param->unsharded_param().storage().nbytes(), 0u) << param->fqn();
        EXPECT_FALSE(param->unsharded_param().grad().defined()) << param->fqn();
      }
    }
    // 13 rows on 2 ranks: 7 and 6; 7 columns.
    EXPECT_EQ(net.embedding->weight.size(0), world.rank() == 0 ? 7 : 6);
  });
}

TEST(FullyShardState, GathersInTheBackgroundUntilTheHandleIsWaitedFor) {
  test::on_ranks(2, [](dist::World& world) {
    const auto shared = test::sharded_net(one_dim(world));
    Net& net = *shared;
    auto handle = fsdp::unshard(*net.embedding, /*async=*/true);
    EXPECT_LT(net.embedding->weight.size(0), 13);
    handle.wait();
    EXPECT_EQ(net.embedding->weight.size(0), 13);
    handle.wait();  // a second time does nothing
    // The next forward uses a gather that nobody has waited for.
    fsdp::reshard(*net.embedding);
    fsdp::unshard(*net.embedding, /*async=*/true);
    EXPECT_TRUE(loss_of(net, tokens_of(0, 0)).isfinite().item<bool>());
  });
}

// On one rank, forward sees the shards themselves, not a second copy of them.
TEST(FullyShardState, OneRankInOneDtypeHoldsParametersOnce) {
  test::on_ranks(1, [](dist::World& world) {
    Net net;
    fsdp::fully_shard(net, {.mesh = one_dim(world)});
    fsdp::to_empty(net, at::kCPU);
    net.init_weights();
    fsdp::unshard(net);
    for (const auto* param : fsdp::FsdpState::of(net)->group()->params()) {
      EXPECT_EQ(param->unsharded_param().data_ptr(), param->sharded_param().data_ptr()) << param->fqn();
    }
  });
}

// A pipeline reduces a stage's gradients when its last microbatch is done, some of them from outside of a backward.
TEST(FullyShardState, ReducesWhatBackwardsHaveLeftOnRequest) {
  test::on_ranks(2, [](dist::World& world) {
    const auto net_of = [&] {
      auto net = std::make_shared<Net>();
      // Sums of gradients are in another dtype than the gradients.
      test::shard_by_block(*net, {.mesh = one_dim(world), .mp_policy = {at::kBFloat16, at::kFloat}},
                           /*checkpoint=*/false);
      fsdp::to_empty(*net, at::kCPU);
      net->init_weights();
      return net;
    };
    const auto expected = net_of(), found = net_of();
    for (const int microbatch : {0, 1, 2}) {
      fsdp::set_requires_gradient_sync(*expected, microbatch == 2);
      torch::autograd::backward({loss_of(*expected, tokens_of(microbatch, world.rank()))}, {});
    }
    nn::use_own_linear_node(true);
    fsdp::set_requires_gradient_sync(*found, false);
    fsdp::set_reshard_after_backward(*found, false);
    fsdp::set_is_last_backward(*found, false);
    for (const int step : {0, 1}) {  // a second step finds nothing of the first
      for (const auto& parameter : found->named_parameters()) parameter.tensor().mutable_grad() = at::Tensor();
      std::array<nn::WeightGradients, 3> later;
      for (const int microbatch : {0, 1, 2}) {
        const nn::WeightGradients::Scope scope(later[static_cast<std::size_t>(microbatch)]);
        torch::autograd::backward({loss_of(*found, tokens_of(microbatch, world.rank()))}, {});
      }
      for (auto& each : later) {
        each.run();
        fsdp::keep_gradients(*found);
      }
      fsdp::reduce_gradients(*found);
      fsdp::end_reductions(*found);
      fsdp::reshard(*found, /*recurse=*/true);
      const auto mine = found->named_parameters(), theirs = expected->named_parameters();
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_TRUE(mine[i].tensor().grad().equal(theirs[i].tensor().grad())) << step << " " << mine[i].fqn;
    }
    nn::use_own_linear_node(false);
  });
}

template <typename Call>
void expect_error(Call&& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "no error with " << parts.front();
  } catch (const InternalError& error) {
    for (const auto& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " is missing in: " << error.what();
    }
  }
}

// Each rank holds its 1/N of everything, and at most two groups gathered or being gathered, at any point of a step.
class FullyShardMemory : public testing::TestWithParam<int> {};

TEST_P(FullyShardMemory, HoldsItsShareAndAtMostTwoGroupsWhole) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    Net net;
    const fsdp::FullyShardOptions options{.mesh = one_dim(world), .reshard_after_forward = true};
    fsdp::fully_shard(*net.embedding, options);
    for (std::size_t i = 0; i < net.blocks->size(); ++i) fsdp::fully_shard((*net.blocks)[i], options);
    fsdp::fully_shard(*net.output, options);
    fsdp::fully_shard(net, options);
    fsdp::to_empty(net, at::kCPU);
    net.init_weights();
    std::size_t most = 0;
    const auto count = [&] {
      std::size_t whole = 0;
      for (auto* state : fsdp::FsdpState::all_below(net)) whole += state->group() && state->group()->holds_gathered();
      most = std::max(most, whole);
    };
    for (std::size_t i = 0; i < net.blocks->size(); ++i) {
      (*net.blocks)[i].add_pre_hook([&](nn::Module&, nn::Tensors&) { count(); });
      (*net.blocks)[i].add_post_hook([&](nn::Module&, const nn::Tensors&, at::Tensor& output) {
        count();
        output.register_hook([&](const at::Tensor&) { count(); });
      });
    }
    auto optimizer = optimizer_of(net);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      torch::autograd::backward({loss_of(net, tokens_of(step, world.rank()))}, {});
      count();
      optimizer.step();
    }
    EXPECT_LE(most, 2u);
    EXPECT_GE(most, world.size() > 1 ? 2u : 1u);  // counting works: the next group is being gathered
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
      const auto& [fqn, param, sharding] = optimizer.parameters()[i];
      const auto rows = (sharding->spec.global_shape[0] + world.size() - 1) / world.size();
      EXPECT_LE(param.size(0), rows) << fqn;
      for (const auto& tensor :
           {param, param.grad(), test::state_of(optimizer, i, "exp_avg"), test::state_of(optimizer, i, "exp_avg_sq")})
        EXPECT_EQ(tensor.sizes(), at::IntArrayRef(sharding->spec.local_shape)) << fqn;
    }
  });
}

// One rank writes to the gathered parameters, against the rules, to test whether the others have the same memory.
TEST_P(FullyShardMemory, HasGatheredParametersOnceOfThreeRanksOfAHost) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto shared = test::sharded_net(one_dim(world));
    const at::NoGradGuard no_grad;
    for (int round = 0; round < 5; ++round) {
      fsdp::unshard(*shared->embedding);
      const auto& whole = shared->embedding->weight;
      const auto before = whole.clone();
      world.group().barrier();
      if (world.rank() == 1) whole.add_(1);
      world.group().barrier();
      const bool sees_it = world.rank() == 1 || world.size() > 2;
      EXPECT_TRUE(whole.equal(sees_it ? before + 1 : before)) << "round " << round;
      world.group().barrier();
      fsdp::reshard(*shared->embedding);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FullyShardMemory, testing::Values(1, 2, 4));

TEST(FullyShardErrors, NameRankModuleAndParameter) {
  test::on_ranks(2, [](dist::World& world) {
    const std::string rank = "rank " + std::to_string(world.rank());
    const fsdp::FullyShardOptions options{.mesh = one_dim(world)};
    Net net;
    fsdp::fully_shard(*net.embedding, options);
    fsdp::fully_shard((*net.blocks)[1], options);
    fsdp::fully_shard(net, options);
    const auto tokens = tokens_of(0, 0);
    expect_error([&] { net(tokens); }, {rank, "the root", "output.weight", "meta device", "to_empty"});
    Net other;
    fsdp::fully_shard((*other.blocks)[1], options);
    fsdp::fully_shard(other, options);
    fsdp::to_empty(other, at::kCPU);
    other.init_weights();
    loss_of(other, tokens);
    // Calls forward() directly, which bypasses the hook of a sharded module.
    const auto h = at::ones({2, 7});
    expect_error([&] { (*other.blocks)[1].forward({h}); }, {rank, "blocks.1", "blocks.1.up.weight", "forward()"});
    // Two dtypes in one group.
    Net mixed;
    mixed.output->weight = mixed.output->weight.detach().to(at::kBFloat16).set_requires_grad(true);
    fsdp::fully_shard(mixed, options);
    for (auto* param : fsdp::FsdpState::of(mixed)->group()->params())
      param->materialize(param->sharded_padded().scalar_type());
    expect_error([&] { mixed(tokens); }, {rank, "output.weight", "BFloat16", "embedding.weight", "Float"});
  });
}

TEST(FullyShardErrors, WantBottomUpAndAnOptimizerAfterwards) {
  test::on_ranks(1, [](dist::World& world) {
    const fsdp::FullyShardOptions options{.mesh = one_dim(world)};
    Net net;
    fsdp::fully_shard(net, options);
    expect_error([&] { fsdp::fully_shard((*net.blocks)[0], options); }, {"norm.weight", "bottom-up"});
    Net early;
    fsdp::to_empty(early, at::kCPU);
    early.init_weights();
    auto optimizer = optimizer_of(early);
    fsdp::fully_shard(early, options);
    torch::autograd::backward({loss_of(early, tokens_of(0, 0))}, {});
    expect_error([&] { optimizer.step(); }, {"embedding.weight", "gradient", "after fully_shard"});
    Net on_meta;
    auto too_early = optimizer_of(on_meta);
    expect_error([&] { too_early.step(); }, {"embedding.weight", "is on the meta device"});
  });
}

TEST(FullyShardErrors, NameTheMistake) {
  const auto world = dist::World::fake(2);
  const fsdp::FullyShardOptions options{.mesh = one_dim(*world)};
  Net net;
  EXPECT_THROW(fsdp::fully_shard(*net.blocks, options), InternalError);
  fsdp::fully_shard(net, options);
  EXPECT_THROW(fsdp::fully_shard(net, options), InternalError);
  EXPECT_THROW(fsdp::unshard(*net.embedding), InternalError);
  EXPECT_THROW(fsdp::set_modules_to_forward_prefetch(net, {net.output.get()}), InternalError);
  Net uneven;
  fsdp::FullyShardOptions along_last{.mesh = one_dim(*world)};
  along_last.shard_placement_fn = [](const nn::NamedParameter&) { return std::optional<std::int64_t>(1); };
  EXPECT_THROW(fsdp::fully_shard(*uneven.embedding, along_last), InternalError);  // 7 columns, 2 ranks
}

TEST(FullyShardErrors, AModelThatWasNotMaterialized) {
  test::on_ranks(1, [](dist::World& world) {
    Net net;
    fsdp::fully_shard(net, {.mesh = one_dim(world)});
    expect_error([&] { net(at::zeros({1, 2}, at::kLong)); }, {"embedding.weight", "still on the meta device"});
  });
}

}  // namespace
}  // namespace titan
