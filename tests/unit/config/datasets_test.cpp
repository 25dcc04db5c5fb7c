#include "config/keys/datasets.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Datasets, EntriesOfAMixture) {
  const MixEntry entry = parse_mix_entry("0.25 jsonl /data/web pages");
  EXPECT_EQ(entry.weight, 0.25);
  EXPECT_EQ(entry.kind, "jsonl");
  EXPECT_EQ(entry.path, "/data/web pages");
  for (const char* bad :
       {"", "jsonl /data", "0 jsonl /data", "-1 jsonl x", "nan jsonl x", "1 jsonl", "1  x", "1x jsonl y"}) {
    EXPECT_THROW(parse_mix_entry(bad), ConfigError) << bad;
  }
}

TEST(Datasets, KindsOfAllThatARunReads) {
  JobConfig config;
  config.training.dataset = "JSONL";
  config.training.dataset_path = "train";
  EXPECT_THAT(find_wrong_datasets(config), IsEmpty());
  config.training.dataset = "jsnol";
  EXPECT_THAT(messages_of(find_wrong_datasets(config)), ElementsAre(HasSubstr("Did you mean \"jsonl\"?")));
  config.validation.enable = true;
  config.validation.dataset = "parquet";
  config.training.dataset_mix = {"1 text a", "2 parquet b", "3"};
  EXPECT_THAT(messages_of(find_wrong_datasets(config)),
              ElementsAre(HasSubstr("training.dataset_mix: unknown dataset \"parquet\". Known: text"),
                          HasSubstr("found \"3\""), HasSubstr("validation.dataset: unknown")));
  config.training.dataset_mix.pop_back();
  const auto named = named_datasets(config);
  ASSERT_EQ(named.size(), 2u);  // the validation dataset has no path
  EXPECT_EQ(named[1].key, "training.dataset_mix");
  EXPECT_EQ(named[1].path, "b");
}

TEST(Datasets, OfConversationsNeedATemplate) {
  JobConfig config;
  config.training.dataset = "text";
  config.training.dataset_path = "a";
  EXPECT_FALSE(uses_chat_template(config));
  config.validation = {.enable = true, .dataset = "Chat", .dataset_path = "b"};
  EXPECT_TRUE(uses_chat_template(config));
  config.validation.enable = false;
  EXPECT_FALSE(uses_chat_template(config));
  config.training.dataset_mix = {"1 text a", "1 chat b"};
  EXPECT_TRUE(uses_chat_template(config));
  config.training.dataset_mix.clear();
  config.chat.chat_template = "c.jinja";
  EXPECT_TRUE(uses_chat_template(config));
}

}  // namespace
}  // namespace titan::config
