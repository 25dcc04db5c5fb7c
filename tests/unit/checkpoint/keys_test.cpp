#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/torchtitan_keys.h"

namespace titan::checkpoint {
namespace {

Values values_of(const std::vector<Item>& items) {
  Values values;
  for (const Item& item : items) values[item_fqn(item)] = std::get<ValueItem>(item).value;
  return values;
}

TEST(TorchTitanKeys, ParamGroupsHaveTheirEntriesBetweenTheRates) {
  std::vector<Item> items;
  append_param_group(items, "layers.0.attention.wq.weight", 0.5, {{"betas", Value::tuple({0.8, 0.9})}, {"eps", 1e-9}},
                     0.7);
  const std::string prefix = "optimizer.param_groups.layers.0.attention.wq.weight.";
  std::vector<std::string> names;
  for (const Item& item : items) names.push_back(item_fqn(item).substr(prefix.size()));
  EXPECT_EQ(names, (std::vector<std::string>{"lr", "betas", "eps", "initial_lr"}));
  EXPECT_EQ(item_path(items[0]), (StatePath{"optimizer", "param_groups.layers.0.attention.wq.weight.lr"}));
  EXPECT_EQ(param_group_key("layers.0.attention.wq.weight", "eps"), prefix + "eps");
  EXPECT_EQ(values_of(items).at(prefix + "initial_lr"), Value(0.7));
}

TEST(TorchTitanKeys, SchedulerAndProgressRoundTrip) {
  std::vector<Item> items;
  append_lr_scheduler(items, {0.0008, 4, 0.0002});
  append_train_state(items, {4, 4096});
  const Values values = values_of(items);
  EXPECT_EQ(values.at("lr_scheduler._step_count"), Value(5));
  EXPECT_EQ(values.at("lr_scheduler._last_lr"), Value::list({0.0002}));
  const LrSchedulerState scheduler = parse_lr_scheduler(values);
  EXPECT_EQ(scheduler.base_lr, 0.0008);
  EXPECT_EQ(scheduler.steps_done, 4);
  EXPECT_EQ(scheduler.last_lr, 0.0002);
  EXPECT_EQ(parse_train_state(values).step, 4);
  EXPECT_EQ(parse_train_state(values).ntokens_seen, 4096);
}

TEST(TorchTitanKeys, APickledValueComesBack) {
  const Value position = Value::dict({{"token_buffer", Value::list({1, 2, 70000, 0})}, {"ended", false}});
  const Value stored = pickled(position);
  EXPECT_EQ(stored.as_bytes("x").substr(0, 2), "\x80\x04") << "protocol 4, as pickle.dumps writes";
  EXPECT_EQ(unpickled(stored, "x"), position);
  EXPECT_THROW(unpickled(Value::bytes("not a pickle"), "x"), CheckpointError);
  EXPECT_THROW(unpickled(position, "x"), CheckpointError);
}

TEST(TorchTitanKeys, TheGeneratorGoesOnWhereItWasSaved) {
  at::manual_seed(5);
  at::rand({3});
  std::vector<Item> items;
  append_rng(items, 0, 2);
  const at::Tensor expected = at::rand({10});
  EXPECT_TRUE(restore_rng(values_of(items), 0, 2));
  EXPECT_TRUE(at::equal(at::rand({10}), expected));
  EXPECT_FALSE(restore_rng(values_of(items), 0, 3));
  EXPECT_FALSE(restore_rng(values_of(items), 1, 2));
}

}  // namespace
}  // namespace titan::checkpoint
