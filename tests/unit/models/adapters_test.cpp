#include "models/common/lora/adapters.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "distributed/mesh.h"
#include "distributed/world.h"
#include "facts/adapter_names.h"
#include "models/registry.h"
#include "nn/lora_linear.h"
#include "parallel/fsdp/fully_shard.h"
#include "parallel/tensor_parallel/styles.h"
#include "tests/support/message_of.h"

namespace titan::models {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

config::Model small_model(const std::string& name = "llama3") {
  config::Model model;
  model.name = name;
  model.flavor = "debugmodel";
  model.args.n_layers = 2;
  return model;
}

config::Lora lora_of(std::vector<std::string> targets) {
  config::Lora lora;
  lora.rank = 4;
  lora.targets = std::move(targets);
  return lora;
}

std::set<std::string> layers_with_adapters(const std::vector<std::string>& targets) {
  const auto model = make_train_spec(small_model(), lora_of(targets), 8).build_model(std::nullopt);
  std::set<std::string> layers;
  for (const auto& parameter : model->named_parameters())
    if (is_adapter_name(parameter.fqn)) layers.insert(std::string(layer_of_adapter(parameter.fqn)));
  return layers;
}

TEST(Adapters, AreWhereTheTargetsSay) {
  const std::set<std::string> queries = {"layers.0.attention.wq", "layers.1.attention.wq"};
  EXPECT_EQ(layers_with_adapters({"wq"}), queries);
  EXPECT_EQ(layers_with_adapters({"q_proj"}), queries);
  EXPECT_EQ(layers_with_adapters({"layers.*.attention.wq"}), queries);
  EXPECT_EQ(layers_with_adapters({"model.layers.*.q_proj"}), queries);
  EXPECT_EQ(layers_with_adapters({"layers.1.attention.wq", "*.0.*w2"}),
            (std::set<std::string>{"layers.1.attention.wq", "layers.0.feed_forward.w2"}));
  EXPECT_EQ(layers_with_adapters({"layers.*"}).size(), 14u);
  EXPECT_EQ(layers_with_adapters({"*"}).size(), 14u);  // not of the output projection
}

TEST(Adapters, AloneRequireAGradient) {
  for (const char* name : {"llama3", "qwen2", "qwen3", "smollm3"}) {
    const auto plain = make_train_spec(small_model(name), 8),
               spec = make_train_spec(small_model(name), lora_of({"*"}), 8);
    std::int64_t all = 0, frozen = 0;
    const auto model = spec.build_model(std::nullopt);
    for (const auto& parameter : model->named_parameters()) {
      all += parameter.tensor().numel();
      if (!parameter.tensor().requires_grad()) frozen += parameter.tensor().numel();
      EXPECT_EQ(parameter.tensor().requires_grad(), is_adapter_name(parameter.fqn)) << parameter.fqn;
    }
    EXPECT_EQ(spec.stats.num_parameters, all) << name;
    EXPECT_EQ(spec.stats.num_frozen_parameters, frozen) << name;
    EXPECT_EQ(plain.stats.num_parameters, frozen) << name;
    EXPECT_EQ(plain.stats.num_frozen_parameters, 0) << name;
  }
}

TEST(Adapters, OfNoLayerAreRefusedWithTheNamesThatThereAre) {
  const auto refused = [](const std::string& target) {
    return message_of<ConfigError>([&] { make_train_spec(small_model(), lora_of({"wq", target}), 8); });
  };
  EXPECT_THAT(refused("wx"), HasSubstr("\"wx\" names no linear layer"));
  EXPECT_THAT(refused("wx"), HasSubstr("layers.*.attention.wq, layers.*.attention.wk"));
  EXPECT_THAT(refused("wx"), HasSubstr("down_proj, gate_proj, k_proj"));
  EXPECT_THAT(refused("tok_embeddings"), HasSubstr("names no linear layer"));
  EXPECT_THAT(refused("output"), HasSubstr("the output projection computes the loss"));
  EXPECT_THAT(refused("lm_head"), HasSubstr("the output projection computes the loss"));
}

TEST(Adapters, HavePeftsNames) {
  const ModelNaming naming = make_train_spec(small_model(), lora_of({"*"}), 8).naming;
  const auto a = naming.to_hub("layers.1.attention.wq.lora_A").at(0),
             b = naming.to_hub("layers.1.attention.wq.lora_B").at(0);
  EXPECT_EQ(a.name, "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(a.rotary_heads, 0);
  EXPECT_EQ(b.name, "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight");
  EXPECT_EQ(b.rotary_heads, 16);  // the rows of B are the heads'
  EXPECT_EQ(naming.to_hub("layers.1.feed_forward.w1.lora_B").at(0).rotary_heads, 0);
  EXPECT_EQ(naming.from_hub(a.name).value().fqn, "layers.1.attention.wq.lora_A");
  EXPECT_EQ(naming.from_hub("model.norm.weight").value().fqn, "norm.weight");
  EXPECT_FALSE(naming.from_hub("base_model.model.model.layers.1.self_attn.x_proj.lora_A.weight"));
  EXPECT_FALSE(is_exported(naming, "layers.1.attention.wq.weight"));
  EXPECT_TRUE(is_exported(naming, "layers.1.attention.wq.lora_A"));
}

TEST(Adapters, AreDescribedForPeft) {
  config::Lora lora = lora_of({"q_proj", "layers.0.feed_forward.w2"});
  lora.alpha = 6;
  lora.dropout = 0.25;
  config::Model model = small_model();
  const auto config_of = [&] { return nlohmann::json::parse(make_train_spec(model, lora, 8).naming.adapter_config); };
  EXPECT_EQ(config_of().at("r"), 4);
  EXPECT_EQ(config_of().at("lora_alpha"), 6);
  EXPECT_EQ(config_of().at("lora_dropout"), 0.25);
  EXPECT_TRUE(config_of().at("base_model_name_or_path").is_null());
  EXPECT_THAT(config_of().at("target_modules"), ElementsAre("q_proj", "model.layers.0.mlp.down_proj"));
  lora.alpha = std::nullopt;
  EXPECT_EQ(config_of().at("lora_alpha"), 4);
  EXPECT_EQ(adapter_scale(lora), 1);
}

// B is zero and A uniform, of a seed and a name: other layers, and other seeds, have other values.
TEST(Adapters, StartWithTheModelsOwnResults) {
  const auto values = [](std::uint64_t seed) {
    auto model = make_train_spec(small_model(), lora_of({"*"}), 8).build_model(std::nullopt);
    fsdp::to_empty(*model, at::kCPU, at::kFloat, at::kBFloat16);
    nn::draw_adapters(*model, seed);
    std::map<std::string, at::Tensor> found;
    for (const auto& parameter : model->named_parameters()) found[parameter.fqn] = parameter.tensor().detach();
    return found;
  };
  const auto found = values(1), same = values(1), other = values(2);
  for (const auto& [fqn, value] : found) {
    EXPECT_EQ(value.scalar_type(), is_adapter_name(fqn) ? at::kFloat : at::kBFloat16) << fqn;
    EXPECT_TRUE(value.equal(same.at(fqn))) << fqn;
    if (!fqn.ends_with(kLoraA)) {
      EXPECT_EQ(value.abs().max().item<float>(), 0) << fqn;
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(value.size(1)));
    const double largest = value.abs().max().item<double>(), mean = value.mean().item<double>();
    EXPECT_LE(largest, bound) << fqn;
    EXPECT_GT(largest, 0.98 * bound) << fqn;  // of 1024 values and more
    EXPECT_LT(std::abs(mean), 0.1 * bound) << fqn;
    EXPECT_FALSE(value.equal(other.at(fqn))) << fqn;
  }
  EXPECT_FALSE(found.at("layers.0.attention.wq.lora_A").equal(found.at("layers.1.attention.wq.lora_A")));
}

TEST(LoraLinear, AddsTheScaledProduct) {
  nn::LoraLinear layer(6, 5, /*has_bias=*/true, {.rank = 2, .scale = 1.5, .dropout = 0.5});
  fsdp::to_empty(layer, at::kCPU);
  {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : layer.named_parameters())
      parameter.tensor().copy_(at::randn(parameter.tensor().sizes()));
  }
  layer.train(false);
  const auto x = at::randn({3, 6});
  const auto wanted = at::linear(x, layer.weight, layer.bias) + 1.5 * x.mm(layer.lora_A.t()).mm(layer.lora_B.t());
  EXPECT_TRUE(at::allclose(layer(x), wanted, /*rtol=*/0, /*atol=*/1e-5));
  // In training half of the inputs of A is zero, and the rest is doubled; those of W are all there.
  layer.train();
  at::manual_seed(3);
  const auto dropped = at::linear(at::linear(x, layer.weight, layer.bias), at::eye(5));
  const auto product = layer(x) - dropped;
  at::manual_seed(3);
  const auto half = at::dropout(x, 0.5, /*train=*/true);
  EXPECT_TRUE(at::allclose(product, 1.5 * half.mm(layer.lora_A.t()).mm(layer.lora_B.t()), /*rtol=*/0, /*atol=*/1e-5));
}

TEST(LoraLinear, IsRefusedWhereItsAdapterWouldBeLeftOut) {
  const auto world = dist::World::fake(2);
  const auto mesh = dist::DeviceMesh::init(*world, {2}, {"tp"});
  const auto refused = [&](const tp::ParallelStyle& style) {
    nn::LoraLinear layer(4, 4, /*has_bias=*/false, {.rank = 2});
    return message_of<InternalError>([&] { style.apply({"wo", &layer}, mesh); });
  };
  EXPECT_THAT(refused(tp::VocabParallelLoss(false)), HasSubstr("takes no layer with an adapter"));
  EXPECT_THAT(refused(tp::RowwiseParallel(tp::Layout::kSequence, /*overlaps=*/true)),
              HasSubstr("takes no layer with an adapter"));
  EXPECT_EQ(refused(tp::RowwiseParallel(tp::Layout::kSequence)), "no error");
  EXPECT_EQ(refused(tp::ColwiseParallel()), "no error");
}

}  // namespace
}  // namespace titan::models
