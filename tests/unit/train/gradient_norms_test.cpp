#include "train/guests/gradient_norms.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <utility>

namespace titan::train {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class KeptNorms : public metrics::MetricsSink {
 public:
  using Norms = std::vector<std::pair<std::int64_t, std::vector<double>>>;
  explicit KeptNorms(Norms& kept) : kept_(kept) {}
  void log(const metrics::StepMetrics&) override {}
  void log_gradient_norms(std::int64_t step, std::span<const double> norms) override {
    kept_.emplace_back(step, std::vector<double>(norms.begin(), norms.end()));
  }

 private:
  Norms& kept_;
};

struct NetOfLayers : nn::Module {
  NetOfLayers() {
    param("embed.weight", weights[0], {1});
    param("layers.0.a", weights[1], {1});
    param("layers.0.b", weights[2], {1});
    param("layers.1.a", weights[3], {1});
    param("output.weight", weights[4], {1});
  }
  at::Tensor forward(const nn::Tensors& inputs) override { return inputs[0]; }
  std::array<at::Tensor, 5> weights;
};

TEST(GradientNorms, ALayerIsWhatHasANumber) {
  EXPECT_EQ(layer_of("layers.3.attention.wq.weight"), "layers.3");
  EXPECT_EQ(layer_of("layers.12.ffn_norm.weight"), "layers.12");
  EXPECT_EQ(layer_of("tok_embeddings.weight"), "tok_embeddings");
  EXPECT_EQ(layer_of("norm"), "norm");
}

TEST(GradientNorms, LayersAreAddedUpAtLoggedSteps) {
  KeptNorms::Norms kept;
  std::vector<std::unique_ptr<metrics::MetricsSink>> sinks;
  sinks.push_back(std::make_unique<KeptNorms>(kept));
  metrics::MetricsProcessor processor({.log_freq = 3}, std::move(sinks));
  NetOfLayers net;
  const RunParameters parameters(net);
  dist::ProcessGroup alone("stages", {0}, 0, {}, {});
  GradientNorms norms(processor, parameters, alone);
  StepOutput output;
  output.grad_norms = at::tensor({1.0F, 3.0F, 4.0F, 2.0F, 0.5F});
  for (const std::int64_t step : {1, 2, 3}) EXPECT_EQ(norms.after_step({step, {}, output}), Verdict::go_on());
  EXPECT_THAT(kept, ElementsAre(Pair(1, ElementsAre(1.0, 5.0, 2.0, 0.5)), Pair(3, ElementsAre(1.0, 5.0, 2.0, 0.5))));
}

}  // namespace
}  // namespace titan::train
