#include "checkpoint/names/torchtitan_main.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace titan::checkpoint {
namespace {

using Keys = std::vector<std::string>;

TEST(TorchTitanMain, NamesAreTranslatedBothWays) {
  const std::pair<const char*, const char*> names[] = {
      {"layers.0.attention.wq.weight", "layers.0.attention.qkv_linear.wq.weight"},
      {"layers.11.attention.wk.bias", "layers.11.attention.qkv_linear.wk.bias"},
      {"optimizer.state.layers.0.attention.wv.weight.exp_avg",
       "optimizer.state.layers.0.attention.qkv_linear.wv.weight.exp_avg"},
      {"output.weight", "lm_head.weight"},
      {"optimizer.param_groups.output.weight.lr", "optimizer.param_groups.lm_head.weight.lr"},
      {"layers.0.attention.wo.weight", "layers.0.attention.wo.weight"},
      {"layers.0.attention.q_norm.weight", "layers.0.attention.q_norm.weight"},
      {"tok_embeddings.weight", "tok_embeddings.weight"}};
  for (const auto& [own, main] : names) {
    EXPECT_EQ(to_main_names(own), main);
    EXPECT_EQ(to_own_names(main), own);
    EXPECT_EQ(to_own_names(own), own);
  }
}

TEST(TorchTitanMain, AnLmHeadAloneIsAnotherProgramsModel) {
  EXPECT_FALSE(has_main_names(Keys{"tok_embeddings.weight", "lm_head.weight"}, "x"));
  EXPECT_FALSE(has_main_names(Keys{"layers.0.attention.wq.weight", "output.weight"}, "x"));
  EXPECT_TRUE(has_main_names(Keys{"layers.0.attention.qkv_linear.wq.weight", "output.weight"}, "x"));
  EXPECT_THROW(has_main_names(Keys{"a.attention.qkv_linear.wq.weight", "output.weight", "lm_head.weight"}, "x"),
               CheckpointError);
  EXPECT_THROW(has_main_names(Keys{"a.attention.qkv_linear.wq.weight", "b.attention.wv.weight"}, "x"), CheckpointError);
}

TEST(TorchTitanMain, AModelWithMainsNamesKeepsThem) {
  const Keys keys = {"layers.0.attention.qkv_linear.wq.weight", "lm_head.weight"};
  const Keys own = {"layers.0.attention.wq.weight", "output.weight"};
  EXPECT_EQ(own_names(keys, keys, "x"), keys);
  EXPECT_EQ(own_names(keys, own, "x"), own);
  EXPECT_EQ(own_names(own, own, "x"), own);
}

TEST(TorchTitanMain, FusedTensorsAreRefusedWhereTheyAreNeeded) {
  const Keys keys = {"layers.0.attention.qkv_linear.wq.weight",
                     "optimizer.state.layers.0.attention.qkv_linear.wqkv.weight.exp_avg"};
  EXPECT_EQ(own_names(keys, {"layers.0.attention.wq.weight"}, "x"), (Keys{"layers.0.attention.wq.weight", keys[1]}));
  EXPECT_THROW(own_names(keys, {"optimizer.state.layers.0.attention.wq.weight.exp_avg"}, "x"), CheckpointError);
}

}  // namespace
}  // namespace titan::checkpoint
