#include "config/command_line/command_line.h"

#include <gmock/gmock.h>

#include "support.h"

namespace titan::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobConfig config_of(const std::vector<std::string>& args) { return load("", args).config; }

TEST(CommandLine, ValueAfterSpaceOrEquals) {
  EXPECT_EQ(config_of({"--training.steps", "7"}).training.steps, 7);
  EXPECT_EQ(config_of({"--training.steps=7"}).training.steps, 7);
  EXPECT_EQ(config_of({"--job.description=a=b c"}).job.description, "a=b c");
}

TEST(CommandLine, DashAndUnderscoreAreAlike) {
  EXPECT_EQ(config_of({"--training.local-batch-size=3"}).training.local_batch_size, 3);
  EXPECT_EQ(config_of({"--lr-scheduler.warmup_steps=4"}).lr_scheduler.warmup_steps, 4);
  EXPECT_TRUE(parse({"--dry_run"}).dry_run);
}

TEST(CommandLine, DashesInValuesStay) {
  EXPECT_EQ(config_of({"--job.dump-folder", "./my-runs"}).job.dump_folder, "./my-runs");
}

TEST(CommandLine, NestedKeys) {
  EXPECT_EQ(config_of({"--training.dataloader.num_workers", "2"}).training.dataloader.num_workers, 2);
  EXPECT_EQ(config_of({"--model.args.rope_scaling_args.scaling_factor=4"}).model.args.rope_scaling_args.scaling_factor,
            4.0);
}

TEST(CommandLine, BooleansInAllSpellings) {
  EXPECT_TRUE(config_of({"--checkpoint.enable"}).checkpoint.enable);
  EXPECT_TRUE(config_of({"--checkpoint.enable=true"}).checkpoint.enable);
  for (const char* off : {"--checkpoint.no-initial-load-model-only", "--checkpoint.no_initial_load_model_only",
                          "--checkpoint.initial_load_model_only=false", "--checkpoint.no_initial_load_model_only=true"})
    EXPECT_FALSE(config_of({off}).checkpoint.initial_load_model_only) << off;
  EXPECT_TRUE(config_of({"--checkpoint.no_initial_load_model_only=false"}).checkpoint.initial_load_model_only);
}

TEST(CommandLine, BooleansAsPythonWritesThem) {
  for (const char* on : {"True", "1"})
    EXPECT_TRUE(config_of({std::string("--checkpoint.enable=") + on}).checkpoint.enable);
  for (const char* off : {"False", "0"})
    EXPECT_FALSE(
        config_of({std::string("--checkpoint.initial_load_model_only=") + off}).checkpoint.initial_load_model_only);
  EXPECT_THAT(parse({"--checkpoint.enable", "False"}).errors,
              ElementsAre(HasSubstr("did you mean --checkpoint.enable=False?")));
}

TEST(CommandLine, OptionalBooleans) {
  EXPECT_EQ(config_of({"--model.args.depth_init"}).model.args.depth_init, true);
  EXPECT_EQ(config_of({"--model.args.no_depth_init"}).model.args.depth_init, false);
  EXPECT_EQ(config_of({"--model.args.depth_init", "--model.args.depth_init=None"}).model.args.depth_init, std::nullopt);
}

TEST(CommandLine, BooleansTakeNoSeparateValue) {
  EXPECT_THAT(parse({"--checkpoint.enable", "true"}).errors,
              ElementsAre(HasSubstr("did you mean --checkpoint.enable=true?")));
  EXPECT_THAT(parse({"--checkpoint.enable=yes"}).errors,
              ElementsAre(HasSubstr("expected true or false; found \"yes\"")));
  EXPECT_THAT(parse({"--no-checkpoint.enable"}).errors,
              ElementsAre(HasSubstr("unknown flag --no-checkpoint.enable; did you mean --checkpoint.no-enable?")));
  EXPECT_THAT(parse({"--training.no_steps=1"}).errors, ElementsAre(HasSubstr("unknown flag")));
}

TEST(CommandLine, NoneUnsetsOptionalsOnly) {
  EXPECT_EQ(load("[debug]\nseed = 3", {"--debug.seed", "None"}).config.debug.seed, std::nullopt);
  EXPECT_THAT(parse({"--training.steps", "None"}).errors,
              ElementsAre(HasSubstr("expected an integer; found \"None\"")));
  EXPECT_THAT(parse({"--debug.seed", "none"}).errors, ElementsAre(HasSubstr("expected an integer or None")));
  EXPECT_THAT(parse({"--debug.seed"}).errors, ElementsAre(HasSubstr("an integer or None")));
}

TEST(CommandLine, ListsReplaceTheFiles) {
  const char* toml = "[checkpoint]\nexclude_from_loading = ['model']";
  EXPECT_THAT(
      load(toml, {"--checkpoint.exclude_from_loading", "optimizer,dataloader"}).config.checkpoint.exclude_from_loading,
      ElementsAre("optimizer", "dataloader"));
  EXPECT_THAT(load(toml, {"--checkpoint.exclude_from_loading="}).config.checkpoint.exclude_from_loading, IsEmpty());
}

TEST(CommandLine, NumbersAsPythonReadsThem) {
  EXPECT_EQ(config_of({"--training.steps", "1_000"}).training.steps, 1000);
  EXPECT_EQ(config_of({"--training.steps", "+5"}).training.steps, 5);
  EXPECT_EQ(config_of({"--training.global_batch_size", "-1"}).training.global_batch_size, -1);
  EXPECT_EQ(config_of({"--training.max_norm", "1"}).training.max_norm, 1.0);
  EXPECT_EQ(config_of({"--optimizer.lr=3e-4"}).optimizer.lr, 3e-4);
  for (const char* bad : {"1e3", "1.5", "", "_1", "1_", "1__0", "0x10", "abc", "9223372036854775808", "+-1", " 1"})
    EXPECT_THAT(parse({std::string("--training.steps=") + bad}).errors, ElementsAre(HasSubstr("expected an integer")))
        << bad;
  for (const char* bad : {"", "a", "1e", "1.0x", "1e999", "0x1p3"})
    EXPECT_THAT(parse({std::string("--optimizer.lr=") + bad}).errors, ElementsAre(HasSubstr("expected a number")))
        << bad;
}

TEST(CommandLine, TheLastOfSeveralWins) {
  EXPECT_EQ(config_of({"--training.steps=1", "--training.steps=2"}).training.steps, 2);
  EXPECT_FALSE(config_of({"--checkpoint.enable", "--checkpoint.no-enable"}).checkpoint.enable);
}

TEST(CommandLine, ConfigFileInAllSpellings) {
  for (const char* flag : {"--config", "--job.config_file", "--job.config-file"}) {
    EXPECT_EQ(parse({flag, "a.toml"}).config_file, "a.toml") << flag;
    EXPECT_EQ(parse({std::string(flag) + "=a.toml"}).config_file, "a.toml") << flag;
  }
  EXPECT_THAT(parse({"--config", "a.toml", "--config=b.toml"}).errors, ElementsAre(HasSubstr("a.toml; give one")));
}

TEST(CommandLine, Modes) {
  const CommandLine line = parse({"--dry-run", "--print-config", "--nproc", "4", "--world-size=8", "--version", "-h"});
  EXPECT_THAT(line.errors, IsEmpty());
  EXPECT_TRUE(line.dry_run && line.print_config && line.version && line.help);
  EXPECT_EQ(line.nproc, 4);
  EXPECT_EQ(line.world_size, 8);
  EXPECT_EQ(parse({"--dry-run", "--device", "H100"}).device, "H100");
  EXPECT_THAT(parse({"--device=H100"}).errors, ElementsAre(HasSubstr("--device H100 is for --dry-run")));
  EXPECT_TRUE(parse({"--dry-run", "--json"}).json);
  EXPECT_THAT(parse({"--json"}).errors, ElementsAre(HasSubstr("--json is for --dry-run")));
  EXPECT_THAT(parse({"--json=x", "--dry-run"}).errors, ElementsAre(HasSubstr("--json takes no value")));
  EXPECT_THAT(parse({"--dry-run", "--overwrite"}).errors, ElementsAre(HasSubstr("--overwrite is for a run")));
  EXPECT_THAT(parse({"--overwrite"}).errors, IsEmpty());
  EXPECT_THAT(parse({"--world-size", "8"}).errors, ElementsAre(HasSubstr("--world-size 8 is for --dry-run")));
  EXPECT_THAT(parse({"--world-size", "8", "--print-config"}).errors, IsEmpty());
  EXPECT_THAT(parse({"--log-rank", "4-1"}).errors, ElementsAre(HasSubstr("--log-rank: \"4-1\" names no ranks")));
  EXPECT_THAT(parse({"--nproc=0"}).errors,
              ElementsAre(HasSubstr("--nproc: expected an integer, at least 1; found \"0\"")));
  EXPECT_THAT(parse({"--dry-run", "--world-size=9223372036854775807"}).errors,
              ElementsAre(HasSubstr("expected an integer, at least 1 and at most 1048576; found \"92233720")));
  EXPECT_THAT(parse({"--dry-run=1"}).errors, ElementsAre(HasSubstr("--dry-run takes no value")));
}

TEST(CommandLine, PrintConfig) {
  EXPECT_TRUE(parse({"--print-config"}).print_config);
  EXPECT_TRUE(parse({"--print-config=origins"}).show_origins);
  EXPECT_TRUE(parse({"--print-config=changed"}).only_changed);
  EXPECT_THAT(parse({"--print-config=all"}).errors,
              ElementsAre(HasSubstr("expected nothing after it, =origins or =changed; found \"all\"")));
}

TEST(CommandLine, UnknownFlagsGetTheNearest) {
  EXPECT_THAT(parse({"--training.stesp", "3"}).errors,
              ElementsAre("command line: error: unknown flag --training.stesp; did you mean --training.steps?"));
  EXPECT_THAT(parse({"--Training.steps=3"}).errors, ElementsAre(HasSubstr("unknown flag")));
  EXPECT_THAT(parse({"--training.step"}).errors, ElementsAre(HasSubstr("did you mean")));  // no abbreviations
}

TEST(CommandLine, FlagsByTheLastPartOfTheirKey) {
  for (const auto& [flag, hint] : std::vector<std::pair<std::string, std::string>>{
           {"--lr", "did you mean --optimizer.lr?"},
           {"--seed", "did you mean --debug.seed?"},
           {"--steps", "did you mean --training.steps or --validation.steps?"},
           {"--seq-len", "did you mean --training.seq_len or --validation.seq_len?"},
           {"--model.n_layers", "did you mean --model.args.n_layers?"},
           {"--vresion", "did you mean --version?"},
           {"--worldsize", "did you mean --world-size?"}})
    EXPECT_THAT(parse({flag, "5"}).errors, ElementsAre("command line: error: unknown flag " + flag + "; " + hint));
}

TEST(CommandLine, KeysWithoutDashes) {
  for (const auto& [word, hint] : std::vector<std::pair<std::string, std::string>>{
           {"training.steps=5", "did you mean --training.steps=5?"},
           {"training.local-batch-size=5", "did you mean --training.local-batch-size=5?"},
           {"optimizer.lr", "did you mean --optimizer.lr VALUE?"},
           {"lr=1e-3", "did you mean --optimizer.lr=1e-3?"}})
    EXPECT_THAT(parse({word}).errors,
                ElementsAre("command line: error: unexpected argument \"" + word + "\"; " + hint));
}

TEST(CommandLine, MissingValuesAndStrayArguments) {
  EXPECT_THAT(parse({"--training.steps"}).errors, ElementsAre(HasSubstr("found the end of the command line")));
  EXPECT_THAT(parse({"--job.dump_folder", "--checkpoint.enable"}).errors,
              ElementsAre(HasSubstr("found the flag --checkpoint.enable")));
  EXPECT_THAT(parse({"a.toml"}).errors, ElementsAre(HasSubstr("--config a.toml")));
  EXPECT_THAT(parse({"-x"}).errors, ElementsAre(HasSubstr("unexpected argument \"-x\"")));
}

TEST(CommandLine, ValuesThatLookLikeFlagsOrNothing) {
  EXPECT_EQ(config_of({"--job.description", "-x"}).job.description, "-x");
  EXPECT_EQ(parse({"--optimizer.lr", "-.5"}).overrides.at(0).value, FieldValue(-.5));
  for (const char* text : {"", "%%", "[a,b]", "{}", "=", "++", "0", "a=b"}) {
    EXPECT_EQ(config_of({"--job.description", text}).job.description, text);
    EXPECT_EQ(config_of({std::string("--job.description=") + text}).job.description, text);
  }
  EXPECT_THAT(parse({"--dry-run="}).errors, ElementsAre(HasSubstr("takes no value; found \"\"")));
}

TEST(CommandLine, AnInlineValueLeavesTheNextArgumentAlone) {
  for (const char* flag : {"--training.steps=3", "--job.description=", "--config=a.toml", "--nproc=2"})
    EXPECT_THAT(parse({flag, "5"}).errors, ElementsAre(HasSubstr("unexpected argument \"5\""))) << flag;
}

TEST(CommandLine, NamesThatNoOptionCanHave) {
  for (const char* flag :
       {"--!training.steps", "-- training.steps", "--\n", "---training.steps", "--=", "--a:b", "--{}"})
    EXPECT_THAT(parse({"--job.description", flag}).errors,
                ElementsAre(HasSubstr("found the flag "), HasSubstr("unknown flag ")))
        << flag;
  EXPECT_THAT(parse({"--", "--dry-run"}).errors, ElementsAre(HasSubstr("unexpected argument \"--\"")));
}

TEST(CommandLine, TrueIsNoValueOfASwitch) {
  EXPECT_THAT(parse({"--dry-run", "true"}).errors, ElementsAre(Not(HasSubstr("did you mean"))));
}

TEST(CommandLine, EveryRepetitionIsChecked) {
  const CommandLine line = parse({"--training.steps=x", "--job.description", "d", "--training.steps"});
  EXPECT_THAT(line.errors, ElementsAre(HasSubstr("found \"x\""), HasSubstr("found the end")));
}

TEST(CommandLine, OverridesKeepTheirOrderAndSpelling) {
  const CommandLine line =
      parse({"--training.steps=1", "--checkpoint.no-enable", "--training.steps", "2", "--checkpoint.enable"});
  ASSERT_THAT(line.errors, IsEmpty());
  std::vector<std::string> flags;
  for (const Override& given : line.overrides) flags.push_back(given.flag);
  EXPECT_THAT(flags,
              ElementsAre("--training.steps", "--checkpoint.no-enable", "--training.steps", "--checkpoint.enable"));
}

TEST(CommandLine, EveryFieldIsAFlag) {
  for (const Field& field : fields()) {
    const CommandLine line = parse({"--" + field.key + "=\x01"});
    for (const std::string& error : line.errors) EXPECT_THAT(error, Not(HasSubstr("unknown flag")));
  }
}

TEST(CommandLine, AllErrorsAtOnce) {
  const CommandLine line = parse({"--training.bogus", "3", "--training.steps=x", "y"});
  EXPECT_THAT(line.errors, ElementsAre(HasSubstr("training.bogus"), HasSubstr("\"x\""), HasSubstr("\"y\"")));
  EXPECT_THAT(error_of([&] { throw_if_wrong(line.errors); }), HasSubstr("3 errors"));
}

}  // namespace
}  // namespace titan::config
