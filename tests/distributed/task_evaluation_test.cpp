// Tests a pass over tasks on real ranks: the model is unchanged afterwards.
#include "train/guests/scores/task_evaluation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/layers.h"
#include "parallel/fsdp/fully_shard.h"
#include "tests/support/run_ranks.h"

namespace titan::train {
namespace {

constexpr std::int64_t kTokens = 11;

class ScoredNet : public LanguageModel {
 public:
  ScoredNet() {
    child("embedding", embedding, std::make_shared<nn::Embedding>(kTokens, 8));
    child("projection", projection, std::make_shared<nn::Linear>(8, kTokens));
  }
  at::Tensor forward(const nn::Tensors& inputs) override {
    modes.push_back({training(), at::GradMode::is_enabled()});
    return (*projection)((*embedding)(inputs[0]));
  }
  nn::Module& output() override { return *projection; }
  void init_weights(nn::Initializer& initializer, at::Device /*buffer_device*/) override {
    for (const auto& parameter : named_parameters()) initializer.normal(parameter, 0.0, 1.0);
  }
  std::shared_ptr<nn::Embedding> embedding;
  std::shared_ptr<nn::Linear> projection;
  std::vector<std::pair<bool, bool>> modes;  // per forward: training, with a graph
};

// Makes a net whose last group stays gathered after forward, like that of a Llama.
std::unique_ptr<ScoredNet> make_scored_net(const dist::DeviceMesh& mesh) {
  auto net = std::make_unique<ScoredNet>();
  fsdp::FullyShardOptions options{.mesh = mesh};
  fsdp::fully_shard(*net->embedding, options);
  options.reshard_after_forward = false;
  fsdp::fully_shard(*net->projection, options);
  options.reshard_after_forward = std::nullopt;
  fsdp::fully_shard(*net, options);
  fsdp::to_empty(*net, at::kCPU);
  const at::NoGradGuard no_grad;
  nn::SequentialInitializer initializer(7);
  net->init_weights(initializer, at::kCPU);
  return net;
}

TEST(TaskEvaluation, LeavesTheModelAsItWas) {
  test::on_ranks(2, [](dist::World& world) {
    const auto meshes = dist::Meshes::build(world, {.dp_shard = world.size(), .world_size = world.size()});
    const auto net = make_scored_net(meshes.fsdp);
    metrics::MetricsProcessor processor({.log_freq = 1}, {});
    config::Evaluation options;
    options.freq = 2;
    EvaluationTask task{.name = "t", .num_items = 1, .texts = {{{1, 2, 3}, 1}, {{1, 2, 4, 5}, 2}}};
    std::vector<double> sums;
    task.scores = [&](std::span<const double> found) {
      sums.assign(found.begin(), found.end());
      return std::vector<Score>();
    };
    TaskEvaluation evaluation({.options = options,
                               .tasks = {task},
                               .vocab_size = kTokens,
                               .last_step = 5,
                               .model = *net,
                               .world = world.group(),
                               .meshes = meshes,
                               .metrics = processor});
    const auto shapes = [&] {
      std::vector<std::vector<std::int64_t>> all;
      for (const auto& parameter : net->named_parameters()) all.push_back(parameter.tensor().sizes().vec());
      return all;
    };
    const auto before = shapes();
    at::manual_seed(5);
    const auto numbers = at::rand({4});
    at::manual_seed(5);
    evaluation.run_if_due(1);
    EXPECT_TRUE(sums.empty());
    evaluation.run_if_due(2);
    EXPECT_EQ(sums.size(), 2u);
    EXPECT_TRUE(at::rand({4}).equal(numbers));
    EXPECT_EQ(shapes(), before);
    EXPECT_NE(before[1], (std::vector<std::int64_t>{kTokens, 8}));  // a shard, not the full tensor
    EXPECT_TRUE(net->training() && net->projection->training() && at::GradMode::is_enabled());
    for (const auto& [training, with_graph] : net->modes) EXPECT_FALSE(training || with_graph);
    EXPECT_FALSE(net->modes.empty());
  });
}

}  // namespace
}  // namespace titan::train
