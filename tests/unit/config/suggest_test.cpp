#include "config/keys/suggest.h"

#include <gmock/gmock.h>

namespace titan::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Suggest, KeysByTheirLastPart) {
  EXPECT_THAT(likely_keys("lr"), ElementsAre("optimizer.lr"));
  EXPECT_THAT(likely_keys("seq-len"), ElementsAre("training.seq_len", "validation.seq_len"));
  EXPECT_THAT(likely_keys("STEPS"), ElementsAre("training.steps", "validation.steps"));
  EXPECT_THAT(likely_keys("model.n_layers"), ElementsAre("model.args.n_layers"));
  EXPECT_THAT(likely_keys("training.lr"), ElementsAre("optimizer.lr"));
  // compile.enable, fault_tolerance.enable and memory_estimation.enable do nothing here.
  EXPECT_THAT(likely_keys("enable"), ElementsAre("checkpoint.enable", "validation.enable"));
}

TEST(Suggest, KeysThatAreNear) {
  EXPECT_THAT(likely_keys("training.stesp"), ElementsAre("training.steps"));
  EXPECT_THAT(likely_keys("trainin.steps"), ElementsAre("training.steps"));
  EXPECT_THAT(likely_keys("warmup-step"), ElementsAre("lr_scheduler.warmup_steps"));
  for (const char* name : {"zzzzzzzzzz", "", ".", "x"}) EXPECT_THAT(likely_keys(name), IsEmpty()) << name;
}

TEST(Suggest, InWords) {
  EXPECT_EQ(did_you_mean({}), "");
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(did_you_mean(std::span(names).first(1), "--"), "; did you mean --a?");
  EXPECT_EQ(did_you_mean(names, "--"), "; did you mean --a, --b or --c?");
}

}  // namespace
}  // namespace titan::config
