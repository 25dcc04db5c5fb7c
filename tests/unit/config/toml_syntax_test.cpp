#include "config/toml/toml_syntax.h"

#include <gmock/gmock.h>

#include "config/toml/document.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TomlSyntax, BareWords) {
  EXPECT_EQ(
      load_error("[model]\nflavor = debugmodel  # small"),
      "t.toml:2:10: error: debugmodel is not a value of TOML; if it is a string, write it in quotes: \"debugmodel\"\n"
      "   2 | flavor = debugmodel  # small\n"
      "     |          ^");
  for (const char* value : {"8B", "./assets/tokenizer", "my first run", "~/data"})
    EXPECT_THAT(load_error("[job]\ndescription = " + std::string(value)),
                HasSubstr("write it in quotes: \"" + std::string(value) + "\""))
        << value;
  EXPECT_THAT(load_error("[debug]\nseed = None"), HasSubstr("write \"None\" to unset"));
}

TEST(TomlSyntax, BooleansOfOtherLanguages) {
  for (const char* value : {"True", "TRUE", "yes", "on"})
    EXPECT_THAT(load_error("[checkpoint]\nenable = " + std::string(value)), HasSubstr("; write true\n")) << value;
  for (const char* value : {"False", "no", "off"})
    EXPECT_THAT(load_error("[checkpoint]\nenable = " + std::string(value)), HasSubstr("; write false\n")) << value;
}

TEST(TomlSyntax, TypographicQuotes) {
  EXPECT_THAT(load_error("[model]\nflavor = “debugmodel”"),
              AllOf(StartsWith("t.toml:2:10: error: “ is a typographic quote; write plain ones: \"debugmodel\"\n")));
  EXPECT_THAT(load_error("[model]\nflavor = ‘8B’"), HasSubstr("‘ is a typographic quote"));
  EXPECT_THAT(load_error("[model]\nconverters = [“float8”]"), HasSubstr("write plain ones: \"...\""));
}

TEST(TomlSyntax, Yaml) {
  EXPECT_THAT(load_error("training:\n  steps: 5"),
              HasSubstr("this is YAML, and a TOML file is expected; write [training]"));
  EXPECT_THAT(load_error("[optimizer]\nlr: 4e-3"), HasSubstr("write lr = 4e-3"));
  EXPECT_THAT(error_of([] { Document("sweep:\n  base: job.toml", "sw.yaml"); }),
              StartsWith("sw.yaml:1:6: error: this is YAML, and a TOML file is expected; write [sweep]\n"));
}

TEST(TomlSyntax, OtherMistakesAreTheParsers) {
  EXPECT_THAT(load_error("[checkpoint]\nexclude_from_loading = [\"model\"\nenable = true"), HasSubstr("not TOML: "));
  EXPECT_THAT(load_error("[training]\nsteps = = 3"), HasSubstr("not TOML: value"));
  EXPECT_THAT(load_error("[training]\nsteps = 1__0"), HasSubstr("not TOML: "));
}

}  // namespace
}  // namespace titan::config
