// A model of three blocks whose numbers of rows are not divisible by small numbers of ranks, for tests of fully_shard.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <memory>
#include <utility>
#include <vector>

#include "nn/checkpointed.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "optim/adamw.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/run_ranks.h"

namespace titan::test {

// Two layers whose rows are not divisible by small world sizes, and one with fewer rows than ranks.
class TinyBlock : public nn::Module {
 public:
  explicit TinyBlock(std::int64_t dim) {
    child("norm", norm_, std::make_shared<nn::RMSNorm>(dim, 1e-5));
    child("up", up_, std::make_shared<nn::Linear>(dim, 3));
    child("down", down_, std::make_shared<nn::Linear>(3, dim));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    return inputs[0] + (*down_)(at::silu((*up_)((*norm_)(inputs[0]))));
  }

 private:
  std::shared_ptr<nn::RMSNorm> norm_;
  std::shared_ptr<nn::Linear> up_, down_;
};

class TinyNet : public nn::Module {
 public:
  TinyNet() {
    child("embedding", embedding, std::make_shared<nn::Embedding>(13, 7));
    child("blocks", blocks, std::make_shared<nn::ModuleList>());
    for (int i = 0; i < 3; ++i) blocks->append(std::make_shared<TinyBlock>(7));
    child("output", output, std::make_shared<nn::Linear>(7, 13));
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
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::ModuleList> blocks;
  std::shared_ptr<nn::Linear> output;
};

inline at::Tensor tokens_of(int step, int rank) {
  return at::randint(13, {2, 5}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * step + rank)),
                     at::kLong);
}

inline at::Tensor loss_of(TinyNet& net, const at::Tensor& tokens) {
  const auto logits = net(tokens);
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), tokens.flatten().roll(1), {}, at::Reduction::Sum);
}

inline optim::AdamW optimizer_of(TinyNet& net) {
  std::vector<optim::TrainedParameter> params;
  for (const auto& parameter : net.named_parameters())
    params.push_back({parameter.fqn, parameter.tensor(), parameter.parameter->sharding});
  return optim::AdamW(params, {.lr = 0.01});
}

inline dist::DeviceMesh one_dim(dist::World& world) { return dist::DeviceMesh::init(world, {world.size()}, {"fsdp"}); }

// Shards the embedding and each block in a group of its own, the output layer with the root. Gradients are sums.
inline void shard_by_block(TinyNet& net, const fsdp::FullyShardOptions& options, bool checkpoint) {
  fsdp::fully_shard(*net.embedding, options);
  for (std::size_t i = 0; i < net.blocks->size(); ++i) {
    if (checkpoint) nn::checkpoint_activations((*net.blocks)[i]);
    fsdp::fully_shard((*net.blocks)[i], options);
  }
  fsdp::fully_shard(net, options);
  fsdp::set_gradient_divide_factor(net, 1.0);
}

// Returns a net initialized on the CPU, with the embedding in a group of its own.
inline std::shared_ptr<TinyNet> sharded_net(const dist::DeviceMesh& mesh) {
  auto net = std::make_shared<TinyNet>();
  const fsdp::FullyShardOptions options{.mesh = mesh};
  fsdp::fully_shard(*net->embedding, options);
  fsdp::fully_shard(*net, options);
  fsdp::to_empty(*net, at::kCPU);
  net->init_weights();
  return net;
}

}  // namespace titan::test
