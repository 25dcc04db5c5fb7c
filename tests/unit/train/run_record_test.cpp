#include "train/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace titan::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The chat template of a run, and the file that names it ("": it is the tokenizer's).
struct Chats {
  std::string text, file = "a.jinja", special_tokens = R"({"eos_token":"</s>"})";
};

Value record(const Chats& chats) {
  config::JobConfig config;
  if (!chats.file.empty()) config.chat.chat_template = chats.file;
  return RunRecord(config,
                   {.fingerprint = "t", .chat_template = chats.text, .chat_special_tokens = chats.special_tokens})
      .value();
}

// Returns why a run with these chats must not go on from `saved`; "no error" if it may.
std::string refusal(const Value& saved, const Chats& chats, config::Checkpoint options = {}) {
  config::JobConfig config;
  config.checkpoint = std::move(options);
  config.model.hf_assets_path = "tokenizer";
  if (!chats.file.empty()) config.chat.chat_template = chats.file;
  const RunRecord now(config,
                      {.fingerprint = "t", .chat_template = chats.text, .chat_special_tokens = chats.special_tokens});
  return test::message_of<CheckpointError>([&] { now.check(saved); });
}

TEST(RunRecord, KnowsATemplateByItsText) {
  const Value saved = record({"one"});
  EXPECT_EQ(refusal(saved, {"one"}), "no error");
  EXPECT_EQ(refusal(saved, {"one", "moved.jinja"}), "no error");
  EXPECT_EQ(refusal(saved, {"one", ""}), "no error");
  EXPECT_THAT(refusal(saved, {"two"}), AllOf(HasSubstr("chat.chat_template was another template, which the checkpoint "
                                                       "keeps as titan.chat_template.jinja, is \"a.jinja\""),
                                             HasSubstr("set checkpoint.allow_changed = [\"chat.chat_template\"]")));
  EXPECT_THAT(refusal(saved, {"two", "b.jinja"}),
              HasSubstr("chat.chat_template was \"a.jinja\", of which the checkpoint keeps the text as "
                        "titan.chat_template.jinja, is \"b.jinja\""));
  EXPECT_THAT(refusal(record({"one", ""}), {"two", ""}), HasSubstr("is that of the tokenizer in \"tokenizer\""));
}

TEST(RunRecord, KnowsATemplateByItsSpecialTokens) {
  EXPECT_THAT(refusal(record({"one"}), {"one", "a.jinja", R"({"eos_token":"<|im_end|>"})"}),
              AllOf(HasSubstr("chat.chat_template was one with other special tokens, is \"a.jinja\""),
                    Not(HasSubstr("another template"))));
}

TEST(RunRecord, LetsAnotherTemplateThroughIfItIsMeant) {
  config::Checkpoint allowed, anew;
  allowed.allow_changed = {"chat.chat_template"};
  anew.exclude_from_loading = {"dataloader"};
  EXPECT_EQ(refusal(record({"one"}), {"two"}, allowed), "no error");
  EXPECT_EQ(refusal(record({"one"}), {"two"}, anew), "no error");
}

// Runs without conversations, and those of before the template was recorded, say nothing about it.
TEST(RunRecord, SaysNothingOfATemplateThatWasNotRecorded) {
  const Value saved = record({"", "a.jinja", ""});
  EXPECT_FALSE(saved.as_dict("record").find("chat_template"));
  EXPECT_EQ(refusal(saved, {"two"}), "no error");
  EXPECT_EQ(refusal(record({"one"}), {"", "a.jinja", ""}), "no error");
}

}  // namespace
}  // namespace titan::train
