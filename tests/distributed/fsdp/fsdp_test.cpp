// Tests fully_shard against the same model on one device: losses, gradients and parameters after optimizer steps.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "optim/clip_grad_norm.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/tiny_net.h"

namespace titan {
namespace {

using test::loss_of;
using test::one_dim;
using test::optimizer_of;
using test::tokens_of;
using Net = test::TinyNet;

struct Result {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<at::Tensor> params;  // full
};

double clip(optim::AdamW& optimizer, dist::ProcessGroup& group) {
  std::vector<optim::ShardedGrad> grads;
  for (const auto& grad : optimizer.grads()) grads.push_back({grad, {&group}});
  return optim::clip_grad_norm(grads, 1.0).item<double>();
}

constexpr int kSteps = 4;

// Trains on all ranks' batches on one device, without sharding.
Result train_plain(int num_ranks) {
  const auto world = dist::World::fake(1);
  Net net;
  fsdp::to_empty(net, at::kCPU);
  net.init_weights();
  auto optimizer = optimizer_of(net);
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double loss = 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto l = loss_of(net, tokens_of(step, rank));
      torch::autograd::backward({l}, {});
      loss += l.item<double>();
    }
    result.losses.push_back(loss);
    result.norms.push_back(clip(optimizer, world->group()));
    optimizer.step();
  }
  for (const auto& parameter : net.named_parameters()) result.params.push_back(parameter.tensor().detach().clone());
  return result;
}

struct Setting {
  std::optional<fsdp::ReshardAfterForward> reshard_after_forward = std::nullopt;
  bool checkpoint = false;
  std::function<std::optional<std::int64_t>(const nn::NamedParameter&)> placement = {};
  // Called with the sharded net before the first step, and before each backward of a microbatch.
  std::function<void(Net&)> prepare = {};
  std::function<void(Net&, int microbatch, bool last)> before_backward = {};
  int microbatches = 1;
};

Result train_sharded(dist::World& world, const dist::DeviceMesh& mesh, const Setting& setting) {
  Net net;
  fsdp::FullyShardOptions options{.mesh = mesh, .reshard_after_forward = setting.reshard_after_forward};
  options.shard_placement_fn = setting.placement;
  test::shard_by_block(net, options, setting.checkpoint);
  fsdp::to_empty(net, at::kCPU);
  net.init_weights();
  if (setting.prepare) setting.prepare(net);
  auto optimizer = optimizer_of(net);
  auto& shard_group = mesh.group(mesh.axis_names().back());
  Result result;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    auto total = at::zeros({}, at::kDouble);
    for (int i = 0; i < setting.microbatches; ++i) {
      const auto l = loss_of(net, tokens_of(step, world.rank() * setting.microbatches + i));
      if (setting.before_backward) setting.before_backward(net, i, i + 1 == setting.microbatches);
      torch::autograd::backward({l}, {});
      total.add_(l.detach());
    }
    world.group().all_reduce(total, dist::ReduceOp::kSum).wait();
    result.losses.push_back(total.item<double>());
    result.norms.push_back(clip(optimizer, shard_group));
    optimizer.step();
  }
  for (const auto& parameter : net.named_parameters()) {
    // Assembles the full parameter from the shards of all ranks.
    const auto spec = parameter.spec();
    auto whole = at::zeros(spec.global_shape);
    auto box = whole;
    for (std::size_t d = 0; d < spec.offset.size(); ++d)
      box = box.narrow(static_cast<std::int64_t>(d), spec.offset[d], spec.local_shape[d]);
    box.copy_(parameter.tensor().detach());
    shard_group.all_reduce(whole, dist::ReduceOp::kSum).wait();
    result.params.push_back(whole);
  }
  return result;
}

// Bounds for float32 sums of the same terms in another order: a few units in the last place for each of the handful of
// additions, amplified by four Adam steps whose ratio m / sqrt(v) is sensitive where gradients are near zero.
void expect_close(const Result& sharded, const Result& plain) {
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(sharded.losses[step], plain.losses[step], 1e-5 * plain.losses[step]) << "step " << step;
    EXPECT_NEAR(sharded.norms[step], plain.norms[step], 1e-5 * plain.norms[step]) << "step " << step;
  }
  for (std::size_t i = 0; i < plain.params.size(); ++i) {
    EXPECT_TRUE(at::allclose(sharded.params[i], plain.params[i], 1e-4, 1e-5)) << i << "\n"
                                                                              << sharded.params[i] - plain.params[i];
  }
}

class FullyShard : public testing::TestWithParam<int> {};

TEST_P(FullyShard, TrainsLikeOneDevice) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    expect_close(train_sharded(world, one_dim(world), {}), train_plain(world.size()));
  });
}

TEST_P(FullyShard, KeepsParametersAfterForwardWhenAsked) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    expect_close(train_sharded(world, one_dim(world), Setting{.reshard_after_forward = false}),
                 train_plain(world.size()));
  });
}

TEST_P(FullyShard, RecomputesActivationsToTheSameBits) {
  test::on_ranks(GetParam(), [](dist::World& world) {
    const auto with = train_sharded(world, one_dim(world), Setting{.checkpoint = true});
    const auto without = train_sharded(world, one_dim(world), {});
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.norms, without.norms);
    for (std::size_t i = 0; i < with.params.size(); ++i) EXPECT_TRUE(with.params[i].equal(without.params[i])) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FullyShard, testing::Values(1, 2, 3, 4));

TEST(FullyShardMesh, TwoDimsShardAndReplicate) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"dp_replicate", "fsdp"});
    expect_close(train_sharded(world, mesh, {}), train_plain(world.size()));
  });
}

TEST(FullyShardMesh, OneShardIsDataParallel) {
  test::on_ranks(2, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 1}, {"dp_replicate", "fsdp"});
    expect_close(train_sharded(world, mesh, {}), train_plain(world.size()));
  });
}

TEST(FullyShardMesh, ReshardsToTwoOfFourAfterForward) {
  test::on_ranks(4, [](dist::World& world) {
    const auto zero3 = train_sharded(world, one_dim(world), {});
    const auto hpz = train_sharded(world, one_dim(world), {.reshard_after_forward = 2});
    // The gathered bits are the same, wherever they come from.
    EXPECT_EQ(hpz.losses, zero3.losses);
    for (std::size_t i = 0; i < hpz.params.size(); ++i) EXPECT_TRUE(hpz.params[i].equal(zero3.params[i])) << i;
    EXPECT_THROW(train_sharded(world, one_dim(world), {.reshard_after_forward = 3}), InternalError);
  });
}

TEST(FullyShardMesh, DataParallelInFloat16DividesOnBothSidesOfTheSum) {
  test::on_ranks(4, [](dist::World& world) {
    Net net;
    const auto mesh = dist::DeviceMesh::init(world, {4, 1}, {"dp_replicate", "fsdp"});
    fsdp::FullyShardOptions options{.mesh = mesh};
    options.mp_policy.reduce_dtype = at::kHalf;
    fsdp::fully_shard(net, options);
    fsdp::to_empty(net, at::kCPU);
    net.init_weights();
    // 40000 on each of 4 ranks: the sum is beyond float16's 65504, the mean is not.
    torch::autograd::backward({net(tokens_of(0, 0)).sum() * 0 + net.output->weight.sum() * 40000}, {});
    EXPECT_TRUE(net.output->weight.grad().isfinite().all().item<bool>());
    EXPECT_TRUE(at::allclose(net.output->weight.grad(), at::full({13, 7}, 40000.0)));
  });
}

TEST(FullyShardPlacement, AlongAnotherDimThanTheFirst) {
  test::on_ranks(3, [](dist::World& world) {
    // "up" is [3, 7] and the embedding [13, 7]: only "down", [7, 3], can be split evenly along its last dim by 3 ranks.
    const Setting setting{.placement = [](const nn::NamedParameter& p) -> std::optional<std::int64_t> {
      return p.fqn == "down.weight" ? std::optional<std::int64_t>(-1) : std::nullopt;
    }};
    expect_close(train_sharded(world, one_dim(world), setting), train_plain(world.size()));
  });
}

// Three microbatches on two ranks have the data of six ranks.
TEST(FullyShardAccumulation, ReducesEveryMicrobatchOrOnlyTheLast) {
  test::on_ranks(2, [](dist::World& world) {
    const auto plain = train_plain(6);
    expect_close(train_sharded(world, one_dim(world), {.microbatches = 3}), plain);
    const auto sync_last = [](Net& net, int, bool last) {
      fsdp::set_requires_gradient_sync(net, last);
      fsdp::set_is_last_backward(net, last);
    };
    expect_close(train_sharded(world, one_dim(world), {.before_backward = sync_last, .microbatches = 3}), plain);
    const auto keep_gathered = [&](Net& net, int i, bool last) {
      sync_last(net, i, last);
      fsdp::set_reshard_after_backward(net, last);
    };
    expect_close(train_sharded(world, one_dim(world), {.before_backward = keep_gathered, .microbatches = 3}), plain);
  });
}

TEST(FullyShardAccumulation, AllReducesOnlyTheLastOverReplicas) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"dp_replicate", "fsdp"});
    const auto all_reduce_last = [](Net& net, int, bool last) { fsdp::set_requires_all_reduce(net, last); };
    expect_close(train_sharded(world, mesh, {.before_backward = all_reduce_last, .microbatches = 2}), train_plain(8));
  });
}

TEST(FullyShardPrefetch, ListsChangeNothingButTheOrder) {
  test::on_ranks(2, [](dist::World& world) {
    const auto lists = [](Net& net) {
      auto& blocks = *net.blocks;
      fsdp::set_modules_to_forward_prefetch(*net.embedding, {&blocks[0], &blocks[1]});
      fsdp::set_modules_to_forward_prefetch(blocks[0], {&blocks[2]});
      fsdp::set_modules_to_backward_prefetch(blocks[2], {&blocks[1], &blocks[0]});
    };
    const auto with = train_sharded(world, one_dim(world), {.prepare = lists});
    const auto without = train_sharded(world, one_dim(world), {});
    EXPECT_EQ(with.losses, without.losses);
    for (std::size_t i = 0; i < with.params.size(); ++i) EXPECT_TRUE(with.params[i].equal(without.params[i])) << i;
  });
}

TEST(FullyShardParams, CanBeFrozenOrIgnored) {
  test::on_ranks(2, [](dist::World& world) {
    Net net;
    net.embedding->weight.set_requires_grad(false);
    auto& down = net.named_parameters()[3].tensor();
    fsdp::FullyShardOptions options{.mesh = one_dim(world)};
    options.ignored_params = {down};
    const std::string ignored = net.named_parameters()[3].fqn;
    fsdp::fully_shard((*net.blocks)[0], options);
    options.ignored_params.clear();
    fsdp::fully_shard((*net.blocks)[1], options);
    options.ignored_params = {down};
    fsdp::fully_shard(net, options);
    fsdp::to_empty(net, at::kCPU);
    net.init_weights();
    torch::autograd::backward({loss_of(net, tokens_of(0, world.rank()))}, {});
    for (const auto& parameter : net.named_parameters()) {
      EXPECT_EQ(parameter.parameter->sharding.has_value(), parameter.fqn != ignored) << parameter.fqn;
      EXPECT_EQ(parameter.tensor().grad().defined(), parameter.fqn != "embedding.weight") << parameter.fqn;
    }
    // The ignored parameter's gradient is this rank's own: the ranks' data differs.
    auto grad = down.grad().clone();
    const auto own = grad.clone();
    world.group().broadcast(grad, 0).wait();
    EXPECT_EQ(grad.equal(own), world.rank() == 0);
  });
}

}  // namespace
}  // namespace titan
