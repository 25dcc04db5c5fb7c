#include "config/keys/changes.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "config/load.h"

namespace titan::config {
namespace {

using ::testing::IsEmpty;

// Returns lines "key: saved -> now" with the effects of each change.
std::vector<std::string> changes(const FlatConfig& saved, const JobConfig& now) {
  std::vector<std::string> out;
  for (const Change& change : find_changes(saved, now)) {
    const char* effects[] = {"model ", "data ", "training "};
    out.push_back(effects[static_cast<int>(change.effect)] + change.key + ": " + change.saved + " -> " + change.now);
  }
  return out;
}

TEST(Changes, AreSortedByWhatTheyMean) {
  JobConfig saved, now;
  saved.debug.seed = 42;
  saved.training.dataset = "text";
  now.training.dataset = "text";
  now.model.flavor = "8B";
  now.optimizer.lr = 0.5;
  now.training.seq_len = 64;
  EXPECT_THAT(
      changes(flatten(saved), now),
      ::testing::ElementsAre("model model.flavor: \"debugmodel\" -> \"8B\"", "training optimizer.lr: 8e-04 -> 0.5",
                             "data training.seq_len: 2048 -> 64", "data debug.seed: 42 -> None"));
}

TEST(Changes, LeaveOutWhatChangesNoNumber) {
  JobConfig now;
  now.job.dump_folder = "elsewhere";
  now.metrics.log_freq = 1;
  now.checkpoint.interval = 3;
  now.comm.init_timeout_seconds = 1;
  now.debug.memory_check_freq = 1;
  now.debug.checksum_freq = 1;
  now.training.gc_freq = 7;
  now.training.gc_debug = true;
  now.activation_checkpoint.debug = true;
  now.activation_checkpoint.determinism_check = "none";
  EXPECT_THAT(changes(flatten(JobConfig{}), now), IsEmpty());
}

TEST(Changes, OfAKeyThatWasNotThereAreFromItsDefault) {
  FlatConfig saved = flatten(JobConfig{});
  saved.erase("training.data_order");
  saved["training.of_the_future"] = "1";
  JobConfig now;
  EXPECT_THAT(changes(saved, now), IsEmpty());
  now.training.data_order = "elastic";
  EXPECT_EQ(changes(saved, now).size(), 1U);
}

TEST(Changes, OfConversationsAreOfTheData) {
  JobConfig now;
  now.chat.too_long = "cut";
  now.chat.loss_weight = "sample";  // the rows stay the same
  EXPECT_THAT(changes(flatten(JobConfig{}), now),
              ::testing::ElementsAre("data chat.too_long: \"error\" -> \"cut\"",
                                     "training chat.loss_weight: \"token\" -> \"sample\""));
}

TEST(Changes, TwoNamesOfOnePlaceAreEqual) {
  JobConfig saved, now;
  saved.training.dataset_path = "corpus/../corpus/a";
  now.training.dataset_path = (std::filesystem::current_path() / "corpus/a").string();
  saved.chat.chat_template = "a.jinja";
  now.chat.chat_template = (std::filesystem::current_path() / "a.jinja").string();
  EXPECT_THAT(changes(flatten(saved), now), IsEmpty());
  now.training.dataset_path = "corpus/b";
  EXPECT_EQ(changes(flatten(saved), now).size(), 1U);
}

}  // namespace
}  // namespace titan::config
