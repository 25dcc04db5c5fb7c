// Tests the format of positions in a checkpoint, and which positions an order refuses.
#include "data/order/saved_order.h"

#include <gmock/gmock.h>

#include <functional>

#include "data/order/elastic_order.h"
#include "data/order/torchtitan_order.h"
#include "tests/support/message_of.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> keys_of(const std::vector<StateEntry>& state) {
  std::vector<std::string> keys;
  for (const StateEntry& entry : state) keys.push_back(entry.key);
  return keys;
}

// Checkpoints of earlier versions have these keys and values.
TEST(ElasticState, HasOneKeyPerLane) {
  const ElasticState state{7, 12, {101, 37}, {{4, 9, {2, 30, 1, 0}}, {5, 9, {3, 1, 1, 8}}}};
  const auto entries = to_entries(state);
  EXPECT_THAT(keys_of(entries),
              ElementsAre("dataloader.titan.order", "dataloader.titan.lane_4", "dataloader.titan.lane_5"));
  EXPECT_EQ(entries[0].value, Value::dict({{"seed", 7}, {"num_lanes", 12}, {"num_items", Value::list({101, 37})}}));
  EXPECT_EQ(entries[2].value, Value::list({9, 3, 1, 1, 8}));
  for (const StateEntry& entry : entries) EXPECT_TRUE(entry.optional && !entry.pickled) << entry.key;
}

TEST(ElasticState, GivesTheLanesThatAreAskedFor) {
  const ElasticState state{7, 12, {101}, {{4, 9, {2, 30}}, {5, 9, {3, 1}}, {6, 9, {4, 4}}}};
  const Values saved = saved_values(to_entries(state));
  const ElasticState back = parse_elastic_state(saved, 5, 3);
  EXPECT_EQ(back.seed, 7);
  EXPECT_EQ(back.num_lanes, 12);
  EXPECT_THAT(back.num_items, ElementsAre(101));
  ASSERT_EQ(back.lanes.size(), 2u) << "lane 7 is not there";
  EXPECT_EQ(back.lanes[0].lane, 5);
  EXPECT_EQ(back.lanes[1].windows, 9);
  EXPECT_THAT(back.lanes[1].cursors, ElementsAre(4, 4));
}

TEST(ElasticState, RefusesWhatItIsNot) {
  const auto error = [](const Values& saved) {
    return test::message_of<CheckpointError>([&] { parse_elastic_state(saved, 0, 1); });
  };
  EXPECT_EQ(error({}), "the checkpoint state has no dataloader.titan.order");
  EXPECT_EQ(error({{kElasticKey, Value::dict({{"seed", 7}})}}), "dataloader.titan.order has no entry num_lanes");
  Values saved = saved_values(to_entries(ElasticState{7, 1, {101}, {}}));
  saved["dataloader.titan.lane_0"] = Value::list({});
  EXPECT_EQ(error(saved), "dataloader.titan.lane_0 is empty");
  saved["dataloader.titan.lane_0"] = "nine";
  EXPECT_EQ(error(saved), "dataloader.titan.lane_0 is a Python str, expected list or tuple");
}

TEST(TorchTitanState, IsThatOfTorchdatasLoader) {
  const auto entries = to_entries(TorchTitanState{6, 11, {1, 2, 70000, 0}}, {1, 2}, 4);
  EXPECT_THAT(keys_of(entries), ElementsAre("dataloader.dp_rank_1", "dataloader.world_size"));
  EXPECT_TRUE(entries[0].pickled && !entries[1].pickled);
  for (const StateEntry& entry : entries) EXPECT_FALSE(entry.optional) << entry.key;
  EXPECT_EQ(*entries[0].value.as_dict("").find("_sampler_iter_state"), Value::dict({{"samples_yielded", 24}}));
  EXPECT_EQ(entries[1].value, Value(2));
  const TorchTitanState back = parse_torchtitan_state(saved_values(entries), 1);
  EXPECT_EQ(back.num_batches, 6);
  EXPECT_EQ(back.sample_idx, 11);
  EXPECT_THAT(back.token_buffer, ElementsAre(1, 2, 70000, 0));
}

TEST(TorchTitanState, RefusesWhatItIsNot) {
  const auto error = [](const Values& saved) {
    return test::message_of<CheckpointError>([&] { parse_torchtitan_state(saved, 0); });
  };
  EXPECT_EQ(error(saved_values(to_entries(TorchTitanState{}, {1, 2}, 4))),
            "the checkpoint state has no dataloader.dp_rank_0");
  EXPECT_THAT(error({{"dataloader.dp_rank_0", Value::dict({{"_snapshot", Value()}})}}), HasSubstr("worker processes"));
  EXPECT_EQ(error({{"dataloader.dp_rank_0", Value::dict({})}}), "dataloader.dp_rank_0 has no entry dataset_state");
}

TEST(SavedOrder, APositionOfAnotherOrderIsRefused) {
  EXPECT_THAT(order_keys(), ElementsAre(kElasticKey, kTorchTitanKey));
  const Values elastic = {{kElasticKey, Value()}}, torchtitan = {{kTorchTitanKey, 2}};
  EXPECT_EQ(test::message_of<CheckpointError>([&] { check_order(elastic, DataOrder::kElastic); }), "no error");
  EXPECT_EQ(test::message_of<CheckpointError>([&] { check_order({}, DataOrder::kElastic); }), "no error");
  EXPECT_THAT(test::message_of<CheckpointError>([&] { check_order(torchtitan, DataOrder::kElastic); }),
              AllOf(HasSubstr("not one of the order in which this run reads its data"),
                    HasSubstr("training.data_order = \"torchtitan\"")));
  EXPECT_THAT(test::message_of<CheckpointError>([&] { check_order(elastic, DataOrder::kTorchTitan); }),
              HasSubstr("training.data_order = \"elastic\""));
}

TEST(SavedOrder, TorchTitansIsOfOneNumberOfRanks) {
  const TempFolder folder;
  folder.write("a", "some text");
  folder.write("b", "more of it");
  const TorchTitanOrder order(open_text_files(folder.path()), std::make_shared<ByteTokenizer>(),
                              {.dataset_name = "text", .seq_len = 4, .rank = {0, 2}});
  EXPECT_EQ(test::message_of<CheckpointError>([&] { order.check_state({{kTorchTitanKey, 2}}); }), "no error");
  EXPECT_EQ(test::message_of<CheckpointError>([&] { order.check_state({}); }), "no error");
  EXPECT_EQ(test::message_of<CheckpointError>([&] {
              order.check_state({{kTorchTitanKey, 3}});
            }),
            "the dataloader state was saved at 3 data-parallel ranks, this run has 2; run at 3, or set "
            "checkpoint.exclude_from_loading = [\"dataloader\"] to restart the data from the beginning");
}

}  // namespace
}  // namespace titan::data
