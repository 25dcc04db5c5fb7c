#include "apps/train/check_same_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace titan::train {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

TEST(SameConfig, SaysWhatDiffersFromRankZero) {
  config::JobConfig here, there;
  here.training.steps = 7;
  there.training.steps = 9;
  here.optimizer.lr = 0.5;
  there.optimizer.lr = 0.25;
  EXPECT_EQ(
      find_disagreement(shared_values(here), shared_values(there), 3),
      "error: rank 3 has another configuration than rank 0: optimizer.lr = 0.5 (rank 0: optimizer.lr = 0.25), "
      "training.steps = 7 (rank 0: training.steps = 9); start all ranks with the same files, variables and flags");
  EXPECT_EQ(find_disagreement(shared_values(here), shared_values(here), 3), std::nullopt);
}

TEST(SameConfig, MachinesMayHaveTheirFilesElsewhere) {
  config::JobConfig here, there;
  here.job.dump_folder = "/a";
  here.training.dataset_path = "/b";
  here.training.dataset_mix = {"c4:/c:1"};
  here.model.hf_assets_path = "/d";
  EXPECT_EQ(find_disagreement(shared_values(here), shared_values(there), 1), std::nullopt);
  EXPECT_THAT(shared_values(here), Not(Contains(StartsWith("job."))));
}

TEST(SameConfig, MachinesHaveTheSameChatTemplate) {
  config::JobConfig here, there;
  here.chat.chat_template = "/a.jinja";
  there.chat.chat_template = "/b.jinja";
  EXPECT_EQ(find_disagreement(shared_values(here, "one"), shared_values(there, "one"), 1), std::nullopt);
  const auto found = find_disagreement(shared_values(here, "one"), shared_values(there, "two"), 1);
  EXPECT_THAT(found.value_or(""), testing::HasSubstr("a chat template of 3 bytes with checksum 7a6c86f1 (rank 0: a "));
}

TEST(SameConfig, OtherKeysAreAnotherProgram) {
  EXPECT_EQ(find_disagreement({"a = 1"}, {"a = 1", "b = 2"}, 1), "error: rank 1 runs another titan-train than rank 0");
}

}  // namespace
}  // namespace titan::train
