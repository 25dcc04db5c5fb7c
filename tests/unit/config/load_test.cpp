#include "config/load.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support.h"

namespace titan::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Load, NothingGivenIsTheDefaults) {
  const LoadedConfig loaded = load("");
  EXPECT_EQ(loaded.config, JobConfig{});
  EXPECT_THAT(loaded.warnings, IsEmpty());
}

TEST(Load, CommandLineOverFileOverDefaults) {
  const JobConfig config = load("[training]\nsteps = 300\nseq_len = 64", {"--training.steps=400"}).config;
  EXPECT_EQ(config.training.steps, 400);
  EXPECT_EQ(config.training.seq_len, 64);
  EXPECT_EQ(config.training.local_batch_size, 8);
}

TEST(Load, AllTypes) {
  const JobConfig config = load(R"(
[job]
description = "quote \" and ü"
[model.args]
dim = 64
depth_init = false
rope_scaling_args = {scaling_factor = 2}
[training]
max_norm = 2
[debug]
seed = 7
[checkpoint]
enable = true
exclude_from_loading = ["optimizer", "dataloader"]
[parallelism]
module_fqns_per_model_part = [["a"], ["b", "c"]]
)")
                               .config;
  EXPECT_EQ(config.job.description, "quote \" and ü");
  EXPECT_EQ(config.model.args.dim, 64);
  EXPECT_EQ(config.model.args.depth_init, false);
  EXPECT_EQ(config.model.args.rope_scaling_args.scaling_factor, 2.0);
  EXPECT_EQ(config.training.max_norm, 2.0);
  EXPECT_EQ(config.debug.seed, 7);
  EXPECT_THAT(config.checkpoint.exclude_from_loading, ElementsAre("optimizer", "dataloader"));
  EXPECT_EQ(config.parallelism.module_fqns_per_model_part, (StringLists{{"a"}, {"b", "c"}}));
}

TEST(Load, StrictTypes) {
  EXPECT_THAT(load_error("[training]\nsteps = 1.0"),
              HasSubstr("expected an integer, at least 1; found the number 1.0"));
  EXPECT_THAT(load_error("[training]\nsteps = '1'"), HasSubstr("found the string \"1\""));
  EXPECT_THAT(load_error("[training]\nsteps = true"), HasSubstr("found true"));
  EXPECT_THAT(load_error("[training]\nsteps = 2020-01-01"), HasSubstr("found a date or time"));
  EXPECT_THAT(load_error("[checkpoint]\nenable = 1"), HasSubstr("expected true or false; found the integer 1"));
  EXPECT_THAT(load_error("[checkpoint]\nenable = 'yes'"), HasSubstr("expected true or false"));
  EXPECT_THAT(load_error("[job]\ndump_folder = 3"), HasSubstr("found the integer 3; write \"3\""));
  EXPECT_THAT(load_error("[optimizer]\nlr = '1e-3'"), HasSubstr("expected a number"));
  EXPECT_THAT(load_error("[optimizer]\nlr = true"), HasSubstr("expected a number"));
  EXPECT_THAT(load_error("[optimizer]\nlr = inf"), HasSubstr("an infinity"));
  EXPECT_THAT(load_error("[checkpoint]\nexclude_from_loading = 'a,b'"), HasSubstr("write [\"a\", \"b\"]"));
  EXPECT_THAT(load_error("[checkpoint]\nexclude_from_loading = ['model', 1]"), HasSubstr("expected a list of strings"));
  EXPECT_THAT(load_error("[training.steps]\na = 1"), HasSubstr("found a table"));
  EXPECT_THAT(load_error("training = 3"), HasSubstr("training: expected a table, [training]; found the integer 3"));
}

TEST(Load, ShortNamesOfDtypes) {
  for (const auto& [text, dtype] :
       std::vector<std::pair<std::string, std::string>>{{"bf16", "bfloat16"}, {"fp32", "float32"}, {"fp16", "float16"}})
    EXPECT_THAT(load_error("[training]\nmixed_precision_param = '" + text + "'"),
                HasSubstr("found \"" + text + "\"; did you mean \"" + dtype + "\"?"));
}

TEST(Load, NoneInAFileUnsetsOptionals) {
  EXPECT_EQ(
      load("[parallelism]\ncontext_parallel_load_balancer = 'None'").config.parallelism.context_parallel_load_balancer,
      std::nullopt);
  EXPECT_EQ(load("[job]\ndescription = 'None'").config.job.description, "None");
}

TEST(Load, ErrorsPointIntoTheFile) {
  EXPECT_EQ(load_error("# ü\n[training]\n\tsteps = 0  # none\n"),
            "t.toml:3:10: error: training.steps: expected an integer, at least 1; found 0\n"
            "   3 | \tsteps = 0  # none\n"
            "     | \t        ^");
  // Columns count characters: the caret is under the value although ü takes two bytes.
  EXPECT_EQ(
      load_error("job.description = 'ü'\noptimizer = {name = 'AdamW', implementation = 'ü'}"),
      "t.toml:2:47: error: optimizer.implementation: expected a string, one of fused, foreach, for-loop; found \"ü\"\n"
      "   2 | optimizer = {name = 'AdamW', implementation = 'ü'}\n"
      "     |                                               ^");
}

TEST(Load, TheCaretCountsCharacters) {
  EXPECT_EQ(load_error("job = {description = 'üü', dump_folder = ''}"),
            "t.toml:1:42: error: job.dump_folder: expected a string, not empty; found an empty one\n"
            "   1 | job = {description = 'üü', dump_folder = ''}\n"
            "     |                                          ^");
}

TEST(Load, UnknownKeysGetTheNearest) {
  EXPECT_THAT(load_error("[training]\nstesp = 1"), AllOf(StartsWith("t.toml:2:1: error: unknown key training.stesp"),
                                                         HasSubstr("did you mean training.steps?")));
  EXPECT_THAT(load_error("[trainin]\nsteps = 1"), HasSubstr("unknown table [trainin]; did you mean [training]?"));
  EXPECT_THAT(load_error("[job]\nwarmup_steps = 1"), HasSubstr("did you mean lr_scheduler.warmup_steps?"));
  EXPECT_THAT(load_error("steps = 1"),
              HasSubstr("unknown key steps; did you mean training.steps or validation.steps?"));
  EXPECT_THAT(load_error("lr = 1"), HasSubstr("unknown key lr; did you mean optimizer.lr?"));
  EXPECT_THAT(load_error("[training.dataloadr]\nnum_workers = 1"), HasSubstr("did you mean [training.dataloader]?"));
  EXPECT_THAT(load_error("[zzzzzzzzzz]"), HasSubstr("--help lists all keys"));
}

TEST(Load, SyntaxErrorsAndDuplicates) {
  EXPECT_THAT(load_error("[training]\nsteps = = 3"), StartsWith("t.toml:2:"));
  EXPECT_THAT(load_error("[training]\nsteps = 1\nsteps = 2"), AllOf(StartsWith("t.toml:3:"), HasSubstr("'steps'")));
  EXPECT_THAT(load_error("[training]\n[training]\n"), StartsWith("t.toml:2:"));
  EXPECT_THAT(load_error("[training]\nsteps = \"abc"), StartsWith("t.toml:2:"));
}

TEST(Load, AllErrorsAtOnceInTheOrderOfTheFile) {
  const std::string error =
      load_error("[training]\nsteps = 0\nbogus = 1\n[debug]\ndeterministic_warn_only = true\n[optimizer]\nlr = 'x'",
                 {"--training.seq_len=0", "--nonsense"});
  EXPECT_THAT(error, HasSubstr("6 errors"));
  std::size_t last = 0;
  for (const char* part : {"t.toml:2:", "t.toml:3:", "t.toml:5:", "t.toml:7:",
                           "command line: error: unknown flag --nonsense", "command line: error: --training.seq_len"}) {
    const std::size_t at = error.find(part);
    ASSERT_NE(at, std::string::npos) << part << "\n" << error;
    EXPECT_GE(at, last) << part;
    last = at;
  }
}

TEST(Load, ValuesNotBuiltMayBeOverriddenAway) {
  const char* toml = "[debug]\ndeterministic_warn_only = true";
  EXPECT_THAT(load_error(toml), AllOf(HasSubstr("t.toml:2:27: error: debug.deterministic_warn_only = true is known but "
                                                "not built yet"),
                                      HasSubstr("set it to its default, false")));
  EXPECT_EQ(load_error(toml, {"--debug.no-deterministic_warn_only"}), "no error");
  EXPECT_THAT(load_error("", {"--debug.deterministic_warn_only"}),
              StartsWith("command line: error: --debug.deterministic_warn_only: "));
}

TEST(Load, KeysWithoutEffectWarnWhenChanged) {
  EXPECT_THAT(load("[training]\ngc_freq = 100").warnings,
              ElementsAre(HasSubstr("training.gc_freq = 100 changes nothing here")));
  EXPECT_THAT(load("[training]\ngc_freq = 50").warnings, IsEmpty());
  EXPECT_THAT(load("[profiling]\nprofile_freq = 100").warnings, IsEmpty());
}

TEST(Load, KeysWithoutWhichARunLacksNothingAreNotedOnce) {
  const LoadedConfig compiled = load("[compile]\nenable = true\ncomponents = ['loss']\nbackend = 'eager'");
  EXPECT_TRUE(compiled.config.compile.enable);
  EXPECT_THAT(compiled.warnings, IsEmpty());
  EXPECT_THAT(compiled.notes, ElementsAre(StartsWith("compile.enable: nothing is compiled; titan-train's own fused "
                                                     "kernels compute the same")));
  EXPECT_THAT(load("[compile]\nenable = false").notes, IsEmpty());
  EXPECT_THAT(load_error("[compile]\ncomponents = ['optimizer']"), HasSubstr("one of model, loss"));
}

TEST(Load, TokenizerPathIsAnAlias) {
  const LoadedConfig loaded = load("[model]\ntokenizer_path = './t'");
  EXPECT_EQ(loaded.config.model.hf_assets_path, "./t");
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr("model.tokenizer_path is deprecated")));
}

TEST(Load, CrossChecksPointAtTheFirstKeyThatWasGiven) {
  EXPECT_EQ(load_error("[training]\nseq_len = 64\n[lr_scheduler]\ntotal_steps = 5", {"--training.steps=9"}),
            "t.toml:4:15: error: lr_scheduler.total_steps (5) is less than training.steps (9): the learning rate would "
            "pass the end of its decay; set it to at least 9 or leave it out\n"
            "   4 | total_steps = 5\n"
            "     |               ^\n"
            "     = training.steps is set by --training.steps");
  EXPECT_THAT(load_error("", {"--lr_scheduler.total_steps=5"}),
              StartsWith("command line: error: --lr_scheduler.total_steps: lr_scheduler.total_steps (5) is less than"));
}

TEST(Load, CrossChecksJoinTheOtherErrorsUnlessTheirKeysAreWrongAlready) {
  const char* total = "[lr_scheduler]\ntotal_steps = 5\n";
  EXPECT_THAT(load_error(std::string(total) + "[optimizer]\nlr = 'x'"), HasSubstr("2 errors"));
  // The intended value of training.steps is not known.
  for (const char* broken : {"[training]\nsteps = 'x'", "[training]\nsteps = 0", "[training]\nstepz = 4"})
    EXPECT_THAT(load_error(std::string(total) + broken), Not(HasSubstr("total_steps (5)"))) << broken;
  EXPECT_THAT(load_error("[checkpoint]\nkeep_latest_k = 1\n[training]\nbatch_size = 4"), HasSubstr("2 errors"));
}

TEST(Load, DegreesAgainstTheNumberOfRanks) {
  const char* toml = "[parallelism]\ndata_parallel_shard_degree = 3";
  EXPECT_EQ(error_of([&] { load_job_config_text(toml, "t.toml", {}, {}, 3); }), "no error");
  EXPECT_THAT(error_of([&] { load_job_config_text(toml, "t.toml", {}, {}, 4); }),
              AllOf(StartsWith("t.toml:2:30: error: the degrees"), HasSubstr("is not 4")));
}

TEST(Load, RepeatedFlagsWarnWhenTheyDiffer) {
  EXPECT_THAT(load("", {"--training.steps=300", "--training.steps=400"}).warnings,
              ElementsAre("--training.steps is given more than once; 400 replaces 300"));
  EXPECT_THAT(load("", {"--training.steps=300", "--training.steps=300"}).warnings, IsEmpty());
}

TEST(Load, OldNamesOfTorchTitan) {
  EXPECT_THAT(load_error("[training]\nbatch_size = 4"),
              HasSubstr("2:1: error: training.batch_size is called training.local_batch_size now"));
  EXPECT_THAT(load_error("[float8]\nx = 1"), HasSubstr("[float8] is called [quantize.linear.float8] now"));
  EXPECT_THAT(load_error("", {"--checkpoint.enable-checkpoint"}), HasSubstr("is called checkpoint.enable now"));
}

TEST(Load, ExpertListsMayBeOneString) {
  const char* toml = "[quantize.grouped_mm.mx]\nfqns = 'a,b'";
  EXPECT_THAT(load(toml).config.quantize.grouped_mm.mx.fqns, ElementsAre("a", "b"));
}

TEST(Load, CrossChecksRunToo) { EXPECT_THAT(load_error("[training]\nseq_len = 7"), HasSubstr("use 6 or 8")); }

TEST(Load, FromARealFile) {
  const std::string path = ::testing::TempDir() + "titan_load_test.toml";
  std::ofstream(path) << "[training]\nsteps = 5\n";
  const JobConfig config = load_job_config(parse({"--config", path})).config;
  EXPECT_EQ(config.training.steps, 5);
  EXPECT_EQ(config.job.config_file, path);
  std::ofstream(path) << "[training]\nsteps = x\n";
  EXPECT_THAT(error_of([&] { load_job_config(parse({"--config", path})); }), StartsWith(path + ":2:"));
  EXPECT_THAT(error_of([&] {
                load_job_config(parse({"--config", path + ".none", "--bogus"}));
              }),
              AllOf(HasSubstr(path + ".none"), HasSubstr("--bogus"), HasSubstr("2 errors")));
}

TEST(Load, NoFileIsTheCommandLineAlone) {
  EXPECT_EQ(load_job_config(parse({"--training.steps=5"})).config.training.steps, 5);
}

}  // namespace
}  // namespace titan::config
