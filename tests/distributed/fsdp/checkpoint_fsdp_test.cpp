// Tests fully_shard inside checkpointed modules: the recomputation gathers again, and no value changes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "nn/checkpointed.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/run_ranks.h"

namespace titan {
namespace {

constexpr int kBlocks = 2, kDim = 6, kSteps = 3;

// Two linear layers, each sharded by itself, and a norm, which is left to the block or the root.
class Block : public nn::Module {
 public:
  Block() {
    child("norm", norm, std::make_shared<nn::RMSNorm>(kDim, 1e-5));
    child("up", up, std::make_shared<nn::Linear>(kDim, 5));
    child("down", down, std::make_shared<nn::Linear>(5, kDim));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    return inputs[0] + (*down)(at::dropout(at::silu((*up)((*norm)(inputs[0]))), 0.25, /*train=*/true));
  }
  std::shared_ptr<nn::RMSNorm> norm;
  std::shared_ptr<nn::Linear> up, down;
};

class Net : public nn::Module {
 public:
  Net() {
    child("embedding", embedding, std::make_shared<nn::Embedding>(13, kDim));
    child("blocks", blocks, std::make_shared<nn::ModuleList>());
    for (int i = 0; i < kBlocks; ++i) blocks->append(std::make_shared<Block>());
    child("output", output, std::make_shared<nn::Linear>(kDim, 13));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    auto h = (*embedding)(inputs[0]);
    for (const auto& [name, block] : blocks->children()) h = (*block)(h);
    return (*output)(h);
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::ModuleList> blocks;
  std::shared_ptr<nn::Linear> output;
};

struct Setting {
  std::optional<nn::CheckpointOptions> checkpoint = std::nullopt;
  bool shard_blocks = true;  // else only the layers in them
  std::optional<fsdp::ReshardAfterForward> reshard_after_forward = std::nullopt;
  std::optional<at::ScalarType> param_dtype = std::nullopt;
};

struct Outcome {
  std::vector<at::Tensor> tensors;       // losses, gradients, parameters
  std::vector<std::size_t> all_gathers;  // per step, and of a forward without gradients
};

constexpr const char* kTraceVariable = "TITAN_TRACE_COLLECTIVES";

// Returns the number of rank 0's all-gathers of parameters so far; all-gathers of bytes are messages.
std::size_t num_all_gathers() {
  std::ifstream file(std::getenv(kTraceVariable));
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);)
    count += line.starts_with("all_gather ") && line.find("float") != std::string::npos ? 1 : 0;
  return count;
}

// Runs `body` on two ranks. Rank 0 writes the file that the variable names.
void on_two_traced_ranks(const std::function<void(dist::World& world)>& body) {
  const auto path = std::filesystem::temp_directory_path() / "collectives";
  if (test::is_rank()) setenv(kTraceVariable, path.c_str(), /*overwrite=*/1);
  test::on_ranks(2, body);
}

Outcome train(dist::World& world, const Setting& setting) {
  Net net;
  for (const auto& [name, block] : net.blocks->children()) {
    if (setting.checkpoint) nn::checkpoint_activations(*block, *setting.checkpoint);
  }
  fsdp::FullyShardOptions options{.mesh = dist::DeviceMesh::init(world, {world.size()}, {"shard"})};
  options.reshard_after_forward = setting.reshard_after_forward;
  options.mp_policy.param_dtype = setting.param_dtype;
  for (const auto& [name, module] : net.blocks->children()) {
    auto& block = static_cast<Block&>(*module);
    fsdp::fully_shard(*block.up, options);
    fsdp::fully_shard(*block.down, options);
    if (setting.shard_blocks) fsdp::fully_shard(block, options);
  }
  fsdp::fully_shard(net, options);
  fsdp::to_empty(net, at::kCPU);
  {
    const at::NoGradGuard no_grad;
    nn::SequentialInitializer initializer(7);
    for (const auto& parameter : net.named_parameters()) initializer.normal(parameter, 0.0, 0.5);
  }
  Outcome outcome;
  at::manual_seed(static_cast<std::uint64_t>(world.rank()));
  for (int step = 0; step < kSteps; ++step) {
    const auto before = num_all_gathers();
    const auto tokens = at::randint(13, {2, 5}, at::kLong);
    const auto logits = net(tokens);
    const auto loss = at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), tokens.flatten().roll(1));
    torch::autograd::backward({loss}, {});
    outcome.tensors.push_back(loss.detach());
    const at::NoGradGuard no_grad;
    for (const auto& parameter : net.named_parameters()) {
      auto& grad = parameter.tensor().mutable_grad();
      EXPECT_TRUE(grad.defined()) << parameter.fqn;
      outcome.tensors.push_back(grad.clone());
      parameter.tensor().sub_(grad, 0.1);
      grad.reset();
    }
    outcome.all_gathers.push_back(num_all_gathers() - before);
  }
  for (const auto& parameter : net.named_parameters()) outcome.tensors.push_back(parameter.tensor().detach().clone());
  const at::NoGradGuard no_grad;
  const auto before = num_all_gathers();
  outcome.tensors.push_back(net(at::randint(13, {2, 5}, at::kLong)));
  outcome.all_gathers.push_back(num_all_gathers() - before);
  return outcome;
}

void expect_equal(const Outcome& found, const Outcome& expected, const char* what) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < expected.tensors.size(); ++i)
    EXPECT_TRUE(found.tensors[i].equal(expected.tensors[i])) << what << ": tensor " << i;
}

nn::CheckpointOptions by_operator() {
  return {.policy = [] { return nn::keep_every_second_linear({}); }};
}

// Expects one gather of the root per step, since it stays gathered for backward, and two of each of the `groups`
// others. The recomputation adds none.
void compare(dist::World& world, Setting setting, std::size_t groups) {
  setting.checkpoint.reset();
  const auto plain = train(world, setting);
  setting.checkpoint = nn::CheckpointOptions{};
  const auto full = train(world, setting);
  setting.checkpoint = by_operator();
  const auto op = train(world, setting);
  expect_equal(full, plain, "full");
  expect_equal(op, plain, "op");
  if (world.rank() != 0) return;
  std::vector<std::size_t> expected(kSteps, 1 + 2 * groups);
  expected.push_back(1 + groups);
  EXPECT_EQ(plain.all_gathers, expected);
  EXPECT_EQ(full.all_gathers, expected);
  EXPECT_EQ(op.all_gathers, expected);
}

TEST(CheckpointFsdp, ShardedModulesInACheckpointedShardedModule) {
  on_two_traced_ranks([](dist::World& world) { compare(world, {}, 3 * kBlocks); });
}

TEST(CheckpointFsdp, ShardedModulesInACheckpointedModule) {
  on_two_traced_ranks([](dist::World& world) { compare(world, {.shard_blocks = false}, 2 * kBlocks); });
}

TEST(CheckpointFsdp, InBfloat16) {
  on_two_traced_ranks([](dist::World& world) { compare(world, {.param_dtype = at::kBFloat16}, 3 * kBlocks); });
}

// Parameters stay gathered after forward: every group is gathered once.
TEST(CheckpointFsdp, KeptParametersAreNotGatheredAgain) {
  on_two_traced_ranks([](dist::World& world) {
    Setting setting{.reshard_after_forward = false};
    const auto plain = train(world, setting);
    setting.checkpoint = by_operator();
    const auto op = train(world, setting);
    expect_equal(op, plain, "op");
    if (world.rank() != 0) return;
    EXPECT_EQ(op.all_gathers, std::vector<std::size_t>(kSteps + 1, 1 + 3 * kBlocks));
  });
}

}  // namespace
}  // namespace titan
