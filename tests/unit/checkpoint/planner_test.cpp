#include "checkpoint/dcp/planner.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/unit/checkpoint/sharded_items.h"

namespace titan::checkpoint {
namespace {

using Indices = std::vector<std::size_t>;

std::vector<std::vector<PlanEntry>> plans_of(const std::vector<std::vector<Item>>& ranks) {
  std::vector<std::vector<PlanEntry>> plans;
  for (const auto& items : ranks) plans.push_back(local_plan(items));
  return plans;
}

TEST(Planner, PlansSurviveTheWire) {
  std::vector<Item> items = {shard("w", at::zeros({5, 2}), 1, 2), replicate("s", at::scalar_tensor(1)), value("v", 3)};
  std::get<ValueItem>(items[2]).path = {"a", std::int64_t{7}, "b"};
  EXPECT_EQ(decode_plan(encode_plan(local_plan(items))), local_plan(items));
}

TEST(Planner, ReplicasGoToTheLightestRank) {
  // Worked by hand after DCP's rule: the weight of a shard is its WHOLE tensor (64 bytes), that of a value is 1.
  const auto items = [](int rank) {
    return std::vector<Item>{shard("w", at::zeros({4, 4}), rank, 2), replicate("a", at::zeros({20})), value("v", 1),
                             replicate("b", at::zeros({1}))};
  };
  const SavePlan plan = plan_save(plans_of({items(0), items(1)}));
  // In order of first appearance: w(0,0) only rank 0 has [64, 0]; a to 1 [64, 80]; v to 0 [65, 80]; b to 0 [69, 80].
  EXPECT_EQ(plan.items[0], (Indices{2, 0, 3}));  // values first in the file
  EXPECT_EQ(plan.items[1], (Indices{0, 1}));
  EXPECT_EQ(plan.metadata.order, (std::vector<std::string>{"w", "v", "b", "a"}));
  const auto& chunks = plan.metadata.find_tensor("w")->chunks;
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[1].offsets, (std::vector<std::int64_t>{2, 0}));
}

TEST(Planner, EmptyShardsAreStored) {
  std::vector<std::vector<Item>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back({shard("w", at::zeros({1, 3}), rank, 3)});
  const SavePlan plan = plan_save(plans_of(ranks));
  const auto& chunks = plan.metadata.find_tensor("w")->chunks;
  ASSERT_EQ(chunks.size(), 2u);  // ranks 1 and 2 have the same (key, offset): one of them writes it
  EXPECT_EQ(chunks[1].offsets, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(chunks[1].sizes, (std::vector<std::int64_t>{0, 3}));
}

TEST(Planner, ContradictionsAreNamed) {
  EXPECT_THROW(plan_save(plans_of({{shard("w", at::zeros({4}), 0, 2)}})), CheckpointError);  // half is missing
  EXPECT_THROW(plan_save(plans_of({{replicate("w", at::zeros({4}))}, {replicate("w", at::zeros({5}))}})),
               CheckpointError);
  EXPECT_THROW(plan_save(plans_of({{replicate("w", at::zeros({4}))}, {value("w", 1)}})), CheckpointError);
  EXPECT_THROW(local_plan({value("v", 1), value("v", 2)}), CheckpointError);
  TensorItem wrong = replicate("w", at::zeros({4}));
  wrong.spec.local_shape = {3};
  EXPECT_THROW(local_plan({wrong}), CheckpointError);
}

TEST(Planner, WeightsThatNobodyWantsAreAnotherModel) {
  TensorItem moment = replicate("optimizer.state.a.exp_avg", at::zeros({4}));
  moment.path = {"optimizer", "state.a.exp_avg"};
  const SavePlan saved = plan_save(
      plans_of({{replicate("a", at::zeros({4})), replicate("layers.6.w", at::zeros({2})), moment, value("v", 1)}}));
  const std::vector<Item> wanted = {replicate("a", at::zeros({4})), replicate("c", at::zeros({1}))};
  const auto error = [&](bool all_weights) {
    try {
      plan_load(saved.metadata, wanted, "ck", all_weights);
    } catch (const CheckpointError& caught) {
      return std::string(caught.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(true),
            "1 of 2 wanted items do not match the checkpoint ck, which has 1 weights that are not in the model:\n"
            "  missing key: c\n  unexpected key: layers.6.w");
  EXPECT_EQ(error(false), "1 of 2 wanted items do not match the checkpoint ck:\n  missing key: c");
}

TEST(Planner, LoadListsEveryProblem) {
  const SavePlan saved =
      plan_save(plans_of({{replicate("a", at::zeros({4})), replicate("b", at::zeros({2, 2})), value("v", 1)}}));
  const std::vector<Item> wanted = {replicate("a", at::zeros({5})),
                                    replicate("c", at::zeros({1})),
                                    value("x", 1),
                                    replicate("v", at::zeros({1})),
                                    value("b", 1),
                                    ValueItem{"y", {"y"}, {}, true}};
  const std::string text = test::message_of<CheckpointError>([&] { plan_load(saved.metadata, wanted, "ck"); });
  for (const char* part : {"5 of 6", "a: expected shape [5], the checkpoint has [4]", "missing key: c",
                           "missing key: x", "v: expected a tensor", "b: expected a value"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_EQ(text.find("key: y"), std::string::npos);
}

}  // namespace
}  // namespace titan::checkpoint
