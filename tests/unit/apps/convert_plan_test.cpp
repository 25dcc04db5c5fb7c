#include "apps/saved/convert_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace titan {
namespace {

using checkpoint::Conversion;
using checkpoint::RowOrder;
using checkpoint::TensorInfo;
using testing::HasSubstr;

// Every parameter of a small Llama, named and shaped as in our checkpoints.
ModelShape shape_of_debugmodel() {
  config::Model model;
  model.name = "llama3";
  model.flavor = "debugmodel";
  ModelShape shape;
  shape.spec = models::make_train_spec(model, 1);
  shape.origin = "job.toml";
  return shape;
}

std::vector<TensorInfo> tensors_of(const ModelShape& shape) {
  std::vector<TensorInfo> tensors;
  const auto model = shape.spec->build_model(std::nullopt);
  for (const auto& parameter : model->named_parameters())
    tensors.push_back({parameter.fqn, c10::ScalarType::Float, parameter.tensor().sizes().vec()});
  return tensors;
}

std::vector<TensorInfo> targets(const std::vector<Conversion>& plan) {
  std::vector<TensorInfo> tensors;
  for (const Conversion& each : plan) tensors.push_back(each.target);
  return tensors;
}

std::map<std::string, Conversion> by_name(const std::vector<Conversion>& plan) {
  std::map<std::string, Conversion> found;
  for (const Conversion& each : plan) found[each.target.name] = each;
  return found;
}

TEST(ConvertPlan, RenamesThereAndBack) {
  const ModelShape shape = shape_of_debugmodel();
  auto tensors = tensors_of(shape);
  const std::size_t num_parameters = tensors.size();
  tensors.push_back({"optimizer.state.norm.weight.exp_avg", c10::ScalarType::Float, {256}});  // not a model tensor
  const auto to_hub = plan_renamed(tensors, /*to_hub=*/true, shape, "same");
  ASSERT_EQ(to_hub.size(), num_parameters);
  const auto hub = by_name(to_hub);
  ASSERT_TRUE(hub.contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_EQ(hub.at("model.layers.0.self_attn.q_proj.weight").order, RowOrder::kToHuggingFace);
  EXPECT_EQ(hub.at("model.layers.0.self_attn.q_proj.weight").heads, shape.spec->stats.num_heads);
  EXPECT_EQ(hub.at("model.layers.0.self_attn.v_proj.weight").order, RowOrder::kSame);
  const auto back = plan_renamed(targets(to_hub), /*to_hub=*/false, shape, "same");
  ASSERT_EQ(back.size(), num_parameters);
  for (std::size_t i = 0; i < num_parameters; ++i) EXPECT_EQ(back[i].target.name, tensors[i].name);
  EXPECT_EQ(by_name(back).at("layers.0.attention.wq.weight").order, RowOrder::kFromHuggingFace);
}

TEST(ConvertPlan, ATiedOutputProjectionIsTheEmbeddingOnceMore) {
  ModelShape shape = shape_of_debugmodel();
  const auto tensors = tensors_of(shape);
  auto stored = targets(plan_renamed(tensors, /*to_hub=*/true, shape, "same"));
  std::erase_if(stored, [](const TensorInfo& each) { return each.name == "lm_head.weight"; });
  ASSERT_EQ(stored.size(), tensors.size() - 1);
  EXPECT_THAT(test::message_of<CheckpointError>([&] { plan_renamed(stored, /*to_hub=*/false, shape, "same"); }),
              HasSubstr("the source is not the model of job.toml: output.weight is missing"));
  shape.tied_embeddings = true;
  const auto plan = by_name(plan_renamed(stored, /*to_hub=*/false, shape, "same"));
  ASSERT_TRUE(plan.contains("output.weight"));
  EXPECT_EQ(plan.at("output.weight").source, plan.at("tok_embeddings.weight").source);
}

TEST(ConvertPlan, RefusesWhatIsNotTheModel) {
  const ModelShape shape = shape_of_debugmodel();
  const auto error = [&](const std::vector<TensorInfo>& tensors) {
    return test::message_of<CheckpointError>([&] { plan_renamed(tensors, /*to_hub=*/true, shape, "same"); });
  };
  auto tensors = tensors_of(shape);
  tensors.push_back({"layers.0.gate.weight", c10::ScalarType::Float, {2}});
  EXPECT_THAT(error(tensors), HasSubstr("tensors that are not parameters of the model: layers.0.gate.weight"));
  tensors.pop_back();
  tensors.back().shape = {3, 4};
  EXPECT_THAT(error(tensors), HasSubstr("is [3, 4], expected ["));
}

TEST(ConvertPlan, CastsFloatingPointTensorsAlone) {
  const std::vector<TensorInfo> tensors = {{"a", c10::ScalarType::Float, {2}},
                                           {"b", c10::ScalarType::Long, {2}},
                                           {"optimizer.x", c10::ScalarType::Float, {2}}};
  const auto plan = plan_same_names(tensors, "bfloat16");
  ASSERT_EQ(plan.size(), 2);
  EXPECT_EQ(plan[0].target.dtype, c10::ScalarType::BFloat16);
  EXPECT_EQ(plan[1].target.dtype, c10::ScalarType::Long);
  EXPECT_EQ(dtype_of(plan), c10::ScalarType::BFloat16);
  EXPECT_EQ(plan_same_names(tensors, "same")[0].target.dtype, c10::ScalarType::Float);
  EXPECT_EQ(dtype_of({}), c10::ScalarType::Float);
}

}  // namespace
}  // namespace titan
