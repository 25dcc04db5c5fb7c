// A state of one weight for tests of the Checkpointer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/torchtitan_keys.h"
#include "tests/unit/checkpoint/sharded_items.h"

namespace titan::checkpoint {

inline constexpr const char* kDataRanksKey = "dataloader.world_size";

// A model of one weight, with all other groups of state.
class TinyState : public CheckpointState {
 public:
  explicit TinyState(int dp_size = 1) : dp_size_(dp_size) {}
  std::vector<Item> items(bool model_only) override {
    std::vector<Item> items = {shard("w", weight, 0, 1)};
    std::get<TensorItem>(items[0]).local = weight;
    if (model_only) return items;
    append_train_state(items, {step, step * 100});
    append_param_group(items, "w", 0.1, {}, 0.1);
    append_lr_scheduler(items, {0.1, step, 0.1});
    items.push_back(value_item("dataloader.dp_rank_0", pickled(step)));
    items.push_back(value_item(kDataRanksKey, dp_size_));
    append_rng(items, 0, 1);
    return items;
  }
  std::vector<Item> probes() override { return {value_item(kDataRanksKey, {}, /*optional=*/true)}; }
  void check_fits(const Values& saved) override {
    const auto ranks = saved.find(kDataRanksKey);
    if (ranks != saved.end() && ranks->second != Value(dp_size_)) throw CheckpointError("the data is of other ranks");
  }
  void restored(const Values& values, bool model_only) override {
    last_values = values;
    if (!model_only && values.contains("train_state.step")) step = parse_train_state(values).step;
  }
  void advance() {
    ++step;
    weight.fill_(static_cast<double>(step));
  }

  at::Tensor weight = at::zeros({4, 2});
  std::int64_t step = 0;
  Values last_values;

 private:
  int dp_size_;
};

}  // namespace titan::checkpoint
