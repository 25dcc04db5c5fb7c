// Tests fully_shard on parameters that tensor parallelism has split, against the same model on one device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "distributed/tensor/dtensor.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "optim/adamw.h"
#include "parallel/fsdp/fully_shard.h"
#include "parallel/tensor_parallel/styles.h"
#include "tests/support/message_of.h"
#include "tests/support/run_ranks.h"

namespace titan {
namespace {

using dist::Replicate;
using dist::Shard;
using dist::StridedShard;
using testing::HasSubstr;
using Placements = std::vector<dist::Placement>;

at::Tensor all_reduced(const at::Tensor& tensor, dist::ProcessGroup& group) {
  auto sum = tensor.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum, dist::ReduceOp::kSum).wait();
  return sum;
}

constexpr std::int64_t kDim = 6;

// norm -> up -> silu -> down, with a residual.
class Block : public nn::Module {
 public:
  explicit Block(std::int64_t hidden) {
    child("norm", norm, std::make_shared<nn::RMSNorm>(kDim, 1e-5));
    child("up", up, std::make_shared<nn::Linear>(kDim, hidden));
    child("down", down, std::make_shared<nn::Linear>(hidden, kDim));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    return inputs[0] + (*down)(at::silu((*up)((*norm)(inputs[0]))));
  }
  std::shared_ptr<nn::RMSNorm> norm;
  std::shared_ptr<nn::Linear> up, down;
};

class Net : public nn::Module {
 public:
  explicit Net(std::int64_t hidden) {
    child("embedding", embedding, std::make_shared<nn::Embedding>(11, kDim));
    child("blocks", blocks, std::make_shared<nn::ModuleList>());
    for (int i = 0; i < 2; ++i) blocks->append(std::make_shared<Block>(hidden));
    child("output", output, std::make_shared<nn::Linear>(kDim, 11));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    auto h = (*embedding)(inputs[0]);
    for (const auto& [name, block] : blocks->children()) h = (*block)(h);
    return (*output)(h);
  }
  void init_weights() {
    const at::NoGradGuard no_grad;
    nn::SequentialInitializer initializer(7);
    for (const auto& parameter : named_parameters()) initializer.normal(parameter, 0.0, 0.5);
  }
  nn::NamedParameter parameter(const std::string& fqn) {
    for (const auto& named : named_parameters()) {
      if (named.fqn == fqn) return named;
    }
    throw InternalError("no parameter " + fqn);
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::ModuleList> blocks;
  std::shared_ptr<nn::Linear> output;
};

at::Tensor loss_of(Net& net, int step, int batch) {
  const auto seed = static_cast<std::uint64_t>(1000 * step + batch);
  const auto tokens = at::randint(11, {2, 5}, at::detail::createCPUGenerator(seed), at::kLong);
  return at::cross_entropy_loss(net(tokens).flatten(0, 1), tokens.flatten().roll(1), {}, at::Reduction::Sum);
}

optim::AdamW optimizer_of(Net& net) {
  std::vector<optim::TrainedParameter> params;
  for (const auto& parameter : net.named_parameters())
    params.push_back({parameter.fqn, parameter.tensor(), parameter.parameter->sharding});
  return optim::AdamW(params, {.lr = 0.01});
}

constexpr int kSteps = 4;

struct Trained {
  std::vector<double> losses, norms;  // per step: the sum of its losses, and the norm of the full gradient
};

// Trains on `batches` batches per step, numbered from `first`.
Trained train(Net& net, int first, int batches) {
  auto optimizer = optimizer_of(net);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    for (int batch = first; batch < first + batches; ++batch) {
      const auto loss = loss_of(net, step, batch);
      torch::autograd::backward({loss}, {});
      sum += loss.item<double>();
    }
    trained.losses.push_back(sum);
    trained.norms.push_back(optim::total_norm(optimizer.sharded_grads()).item<double>());
    optimizer.step();
  }
  return trained;
}

at::Tensor box_in(at::Tensor whole, const dist::ShardSpec& spec) {
  for (std::int64_t d = 0; d < whole.dim(); ++d) {
    const auto count = spec.local_shape[d];
    whole = whole.narrow(d, std::min(spec.offset[d], whole.size(d) - count), count);
  }
  return whole;
}

// Returns how many ranks of the world hold each element.
at::Tensor holders(const dist::ShardSpec& spec, dist::World& world) {
  auto count = at::zeros(spec.global_shape);
  box_in(count, spec).fill_(1);
  return all_reduced(count, world.group());
}

// How the layers of a block are split. Between them every rank has the same hidden states.
struct Styles {
  std::shared_ptr<const tp::ParallelStyle> up = std::make_shared<tp::ColwiseParallel>();
  std::shared_ptr<const tp::ParallelStyle> down = std::make_shared<tp::RowwiseParallel>();
};

void distribute_blocks(Net& net, const dist::DeviceMesh& tp, const Styles& styles = {}) {
  for (const auto& [name, module] : net.blocks->children()) {
    const auto block = std::static_pointer_cast<Block>(module);
    nn::distribute(net.parameter("blocks." + name + ".norm.weight"), tp, {Replicate{}});
    styles.up->apply({name + ".up", block->up.get()}, tp);
    styles.down->apply({name + ".down", block->down.get()}, tp);
  }
}

void shard(Net& net, const fsdp::FullyShardOptions& options) {
  for (const auto& [name, block] : net.blocks->children()) fsdp::fully_shard(*block, options);
  fsdp::fully_shard(net, options);
  fsdp::set_gradient_divide_factor(net, 1.0);
}

struct Expected {
  std::map<std::string, Placements> placements;  // parameters of a block; the others are only on the data mesh
  std::map<std::string, int> holders;            // ranks that hold each element
};

// Trains the net with its blocks split over "tp" and everything sharded over `data` on this world, and on one device.
void expect_trains_like_one_device(dist::World& world, const dist::DeviceMesh& mesh,
                                   const std::vector<std::string>& data, std::int64_t hidden,
                                   const fsdp::FullyShardOptions& base, const Expected& expected,
                                   const Styles& styles = {}) {
  const auto data_mesh = mesh.slice(data);
  const int num_batches = data_mesh.size();
  int batch = 0;
  for (const auto& axis : data) batch = batch * mesh.size(axis) + mesh.local_rank(axis);

  Net plain(hidden);
  fsdp::to_empty(plain, at::kCPU);
  plain.init_weights();
  Net net(hidden);
  distribute_blocks(net, mesh.slice({"tp"}), styles);
  auto options = base;
  options.mesh = data_mesh;
  shard(net, options);
  fsdp::to_empty(net, at::kCPU);
  net.init_weights();
  for (const auto& named : net.named_parameters()) {
    const auto whole = plain.parameter(named.fqn).tensor().detach();
    EXPECT_TRUE(named.tensor().detach().equal(box_in(whole, named.spec()))) << named.fqn;
    EXPECT_TRUE(named.dtensor().full_tensor().equal(whole)) << named.fqn << " " << named.dtensor().text();
    const auto in_block = named.fqn.substr(named.fqn.find('.', 7) + 1);
    if (named.fqn.starts_with("blocks")) {
      EXPECT_EQ(named.dtensor().placements(), expected.placements.at(in_block)) << named.dtensor().text();
      EXPECT_EQ(named.dtensor().mesh().axis_names(), mesh.axis_names()) << named.fqn;
    }
    const int times = named.fqn.starts_with("blocks") ? expected.holders.at(in_block) : expected.holders.at("other");
    EXPECT_TRUE(holders(named.spec(), world).eq(times).all().item<bool>()) << named.fqn << "\n"
                                                                           << holders(named.spec(), world);
  }

  const auto on_one_device = train(plain, 0, num_batches);
  const auto mine = train(net, batch, 1);
  auto losses = at::tensor(mine.losses, at::kDouble);
  for (const auto& axis : data) losses = all_reduced(losses, mesh.group(axis));
  // Bounds as in fsdp_test.cpp (ten times as wide for norms): float32 sums of the same terms in another order,
  // amplified by four Adam steps.
  for (int step = 0; step < kSteps; ++step) {
    const double loss = on_one_device.losses[step], norm = on_one_device.norms[step];
    EXPECT_NEAR(losses[step].item<double>(), loss, 1e-5 * loss) << "step " << step;
    EXPECT_NEAR(mine.norms[step], norm, 1e-4 * norm) << "step " << step;
  }
  for (const auto& named : net.named_parameters()) {
    const auto whole = plain.parameter(named.fqn).tensor().detach();
    EXPECT_TRUE(at::allclose(named.dtensor().full_tensor(), whole, 1e-4, 1e-5)) << named.fqn;
  }
}

Expected two_by_two() {
  return {.placements = {{"norm.weight", {Shard{0}, Replicate{}}},
                         {"up.weight", {StridedShard{0, 2}, Shard{0}}},
                         {"down.weight", {Shard{0}, Shard{1}}}},
          .holders = {{"norm.weight", 2}, {"up.weight", 1}, {"down.weight", 1}, {"other", 2}}};
}

TEST(FullyShardOverTensorParallel, TrainsLikeOneDevice) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    // 7 rows: 4 and 3 by tp, then 2 + 2 and 2 + 1. 8 rows: even. 2 rows: 1 + 1, and the second fsdp rank has none.
    for (const std::int64_t hidden : {7, 8, 2})
      expect_trains_like_one_device(world, mesh, {"fsdp"}, hidden, {}, two_by_two());
    expect_trains_like_one_device(world, mesh, {"fsdp"}, 7, {.mesh = {}, .reshard_after_forward = false}, two_by_two());
  });
}

TEST(FullyShardOverTensorParallel, AlongTheDimThatIsSplit) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    fsdp::FullyShardOptions options;
    options.shard_placement_fn = [](const nn::NamedParameter& p) -> std::optional<std::int64_t> {
      return p.fqn == "down.weight" ? std::optional<std::int64_t>(-1) : std::nullopt;
    };
    auto expected = two_by_two();
    expected.placements["down.weight"] = {StridedShard{1, 2}, Shard{1}};
    expect_trains_like_one_device(world, mesh, {"fsdp"}, 8, options, expected);
  });
}

// Each layer gathers its features: the gradient of its input is a sum over the ranks, too.
TEST(FullyShardOverTensorParallel, WithGatheredFeatures) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    const auto gathers = std::make_shared<tp::ColwiseParallel>(tp::Layout::kWhole, tp::Layout::kWhole);
    auto expected = two_by_two();
    expected.placements["down.weight"] = {StridedShard{0, 2}, Shard{0}};
    expect_trains_like_one_device(world, mesh, {"fsdp"}, 7, {}, expected, {gathers, gathers});
  });
}

TEST(FullyShardOverTensorParallel, WithReplicas) {
  test::on_ranks(4, [](dist::World& world) {
    const Expected expected = {.placements = {{"norm.weight", {Replicate{}, Shard{0}, Replicate{}}},
                                              {"up.weight", {Replicate{}, StridedShard{0, 2}, Shard{0}}},
                                              {"down.weight", {Replicate{}, Shard{0}, Shard{1}}}},
                               .holders = {{"norm.weight", 4}, {"up.weight", 2}, {"down.weight", 2}, {"other", 4}}};
    const auto mesh = dist::DeviceMesh::init(world, {2, 1, 2}, {"dp_replicate", "fsdp", "tp"});
    expect_trains_like_one_device(world, mesh, {"dp_replicate", "fsdp"}, 7, {}, expected);
  });
}

TEST(FullyShardOverTensorParallel, GathersTheLocalPart) {
  test::on_ranks(4, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2, 2}, {"fsdp", "tp"});
    Net net(7);
    distribute_blocks(net, mesh.slice({"tp"}));
    shard(net, {.mesh = mesh.slice({"fsdp"})});
    fsdp::to_empty(net, at::kCPU);
    net.init_weights();
    const auto up = net.parameter("blocks.0.up.weight");
    const auto whole = up.dtensor().full_tensor();
    fsdp::unshard((*net.blocks)[0]);
    const auto part = dist::DTensor::distribute(whole, mesh.slice({"tp"}), {Shard{0}}).to_local();
    EXPECT_EQ(up.tensor().size(0), mesh.local_rank("tp") == 0 ? 4 : 3);
    EXPECT_TRUE(up.tensor().detach().equal(part));
    EXPECT_THROW(up.dtensor(), InternalError);
    fsdp::reshard((*net.blocks)[0]);
    EXPECT_TRUE(up.dtensor().full_tensor().equal(whole));
  });
}

TEST(FullyShardOverTensorParallel, NamesTheMistake) {
  const auto world = dist::World::fake(4);
  const auto mesh = dist::DeviceMesh::init(*world, {2, 2}, {"fsdp", "tp"});
  const auto other = dist::DeviceMesh::init(*world, {2, 2}, {"fsdp", "tp"});
  Net net(7);
  distribute_blocks(net, mesh.slice({"tp"}));
  EXPECT_THAT(test::message_of<Error>([&] { fsdp::fully_shard(net, {.mesh = other.slice({"fsdp"})}); }),
              AllOf(HasSubstr("blocks.0.norm.weight, (Replicate()), cannot be sharded further"),
                    HasSubstr("no common parent")));
  EXPECT_THAT(test::message_of<Error>([&] { distribute_blocks(net, mesh.slice({"tp"})); }),
              HasSubstr("blocks.0.norm.weight is sharded already, (Replicate())"));
  EXPECT_THAT(test::message_of<Error>([&] { net.parameter("output.weight").dtensor(); }), HasSubstr("is not sharded"));
  Net overlapping(7);
  distribute_blocks(overlapping, mesh.slice({"tp"}));
  EXPECT_THAT(test::message_of<Error>([&] { fsdp::fully_shard(overlapping, {.mesh = mesh.slice({"tp"})}); }),
              HasSubstr("overlap"));
  Net partial(7);
  auto weight = partial.parameter("output.weight");
  weight.parameter->sharding = dist::Sharding::of({11, kDim}, mesh.slice({"tp"}), {dist::Partial{}});
  EXPECT_THAT(test::message_of<Error>([&] { fsdp::fully_shard(*partial.output, {.mesh = mesh.slice({"fsdp"})}); }),
              HasSubstr("parameters cannot have a Partial placement"));
  weight.parameter->sharding = dist::Sharding::of({11, kDim}, mesh.slice({"tp"}), {Shard{0}});
  EXPECT_THAT(test::message_of<Error>([&] { fsdp::fully_shard(*partial.output, {.mesh = mesh.slice({"fsdp"})}); }),
              HasSubstr("its local tensor has shape [11, 6], which should be [6, 6]"));
  nn::Linear empty(3, 0);
  EXPECT_THAT(test::message_of<Error>([&] { fsdp::fully_shard(empty, {.mesh = mesh.slice({"fsdp"})}); }),
              HasSubstr("weight with shape [0, 3] has no elements to shard"));
}

struct Tied : nn::Module {
  Tied() {
    child("first", first, std::make_shared<nn::Linear>(kDim, 8));
    child("second", second, std::make_shared<nn::Linear>(kDim, 8));
    tie("second.weight", "first.weight");
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return (*first)(inputs) + (*second)(inputs); }
  std::shared_ptr<nn::Linear> first, second;
};

TEST(TiedParameters, AreShardedOnce) {
  const auto world = dist::World::fake(4);
  const auto mesh = dist::DeviceMesh::init(*world, {2, 2}, {"fsdp", "tp"});
  Tied net;
  const auto slots = net.named_parameters(/*remove_duplicate=*/false);
  dist::DeviceMesh tp = mesh.slice({"tp"});
  for (const auto& slot : slots) nn::distribute(slot, tp, {Shard{0}});
  EXPECT_EQ(net.first->weight.sizes(), (at::IntArrayRef{4, kDim}));
  EXPECT_TRUE(net.first->weight.is_same(net.second->weight));
  EXPECT_EQ(slots[1].spec(), slots[0].spec());
  EXPECT_THAT(test::message_of<Error>([&] { nn::distribute(slots[1], tp, {Shard{1}}); }),
              HasSubstr("second.weight is tied, and its parameter is sharded as (Shard(0))"));
  EXPECT_THAT(
      test::message_of<Error>([&] { fsdp::fully_shard(*net.second, {.mesh = mesh.slice({"fsdp"})}); }),
      HasSubstr("[fsdp] weight is tied to a parameter of another module; give all modules that have it to one"));
  fsdp::fully_shard(net, {.mesh = mesh.slice({"fsdp"})});
  EXPECT_EQ(net.first->weight.sizes(), (at::IntArrayRef{2, kDim}));
  EXPECT_TRUE(net.first->weight.is_same(net.second->weight));
}

// The group of a tied parameter may list its modules in any order.
TEST(TiedParameters, RunFromAGroupInAnyOrder) {
  test::on_ranks(2, [](dist::World& world) {
    const auto mesh = dist::DeviceMesh::init(world, {2}, {"fsdp"});
    Tied net;
    fsdp::fully_shard({net.second.get(), net.first.get()}, {.mesh = mesh});
    fsdp::fully_shard(net, {.mesh = mesh});
    fsdp::to_empty(net, at::kCPU);
    const auto parameters = net.named_parameters();
    ASSERT_EQ(parameters.size(), 1U);
    EXPECT_EQ(parameters[0].fqn, "first.weight");
    const at::Tensor weight = at::arange(8 * kDim, at::kFloat).view({8, kDim}), x = at::ones({3, kDim});
    const at::NoGradGuard no_grad;
    parameters[0].tensor().copy_(weight.narrow(0, 4 * world.rank(), 4));
    EXPECT_TRUE(net(x).allclose(2 * at::linear(x, weight)));
  });
}

}  // namespace
}  // namespace titan
