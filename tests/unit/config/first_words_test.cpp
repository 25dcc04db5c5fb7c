#include "config/command_line/first_words.h"

#include <gmock/gmock.h>

#include "support.h"

namespace titan::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FirstWords, HelpAndVersionAreFlags) {
  EXPECT_THAT(spelled_out({"help"}), ElementsAre("--help"));
  EXPECT_THAT(spelled_out({"help", "training"}), ElementsAre("--help", "training"));
  EXPECT_THAT(spelled_out({"version"}), ElementsAre("--version"));
}

TEST(FirstWords, HelpOfACommandIsTheCommands) {
  EXPECT_THAT(spelled_out({"help", "sweep"}), ElementsAre("sweep", "--help"));
  EXPECT_THAT(spelled_out({"--help", "sweep"}), ElementsAre("sweep", "--help"));
  EXPECT_THAT(spelled_out({"--help=inspect"}), ElementsAre("inspect", "--help"));
  EXPECT_THAT(spelled_out({"-h", "tokenizer", "train"}), ElementsAre("tokenizer", "train", "--help"));
}

TEST(FirstWords, EverythingElseStays) {
  EXPECT_THAT(spelled_out({}), IsEmpty());
  EXPECT_THAT(spelled_out({"--config", "help"}), ElementsAre("--config", "help"));
  EXPECT_THAT(spelled_out({"--help=training.steps"}), ElementsAre("--help", "training.steps"));
  EXPECT_THAT(spelled_out({"sweep", "help"}), ElementsAre("sweep", "help"));
}

TEST(FirstWords, SecondWords) {
  EXPECT_EQ(error_of([] { check_second_word({"tokenizer", "encode"}); }), "no error");
  EXPECT_EQ(error_of([] { check_second_word({"tokenizer", "--help"}); }), "no error");
  EXPECT_EQ(error_of([] { check_second_word({"sweep", "anything"}); }), "no error");
  EXPECT_THAT(error_of([] {
                check_second_word({"tokenizer", "encod"});
              }),
              HasSubstr("there is no \"encod\"; did you mean titan-train tokenizer encode?"));
  EXPECT_THAT(error_of([] { check_second_word({"tokenizer"}); }), HasSubstr("expected one of train, encode, decode"));
}

TEST(FirstWords, ShortFlags) {
  EXPECT_EQ(parse({"-c", "a.toml"}).config_file, "a.toml");
  EXPECT_EQ(parse({"-c=a.toml"}).config_file, "a.toml");
  EXPECT_TRUE(parse({"-V"}).version);
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_THAT(parse({"-v"}).errors, ElementsAre(HasSubstr("did you mean -V, for --version?")));
  EXPECT_THAT(parse({"train"}).errors, ElementsAre(HasSubstr("to train: titan-train --config FILE")));
}

}  // namespace
}  // namespace titan::config
