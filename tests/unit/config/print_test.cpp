#include "config/keys/print.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/text.h"
#include "config/command_line/complete.h"
#include "config/command_line/help.h"
#include "config/command_line/program.h"
#include "config/keys/fields.h"
#include "support.h"

namespace titan::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ToToml, DefaultsLoadBack) { EXPECT_EQ(load(to_toml(JobConfig{})).config, JobConfig{}); }

TEST(ToToml, ChangedValuesLoadBackExactly) {
  JobConfig config;
  config.job.description = "tab\t quote\" back\\slash\nnew line \x01 ü";
  config.optimizer.lr = 0.1 + 0.2;  // 17 digits
  config.optimizer.eps = 1e-300;
  config.training.max_norm = 3;  // a whole number must remain a float
  config.lr_scheduler.decay_ratio = 1.0 / 3;
  config.debug.seed = 9223372036854775807;
  config.checkpoint.exclude_from_loading = {"optimizer", "dataloader"};
  config.parallelism.module_fqns_per_model_part = StringLists{{"a", "b"}, {}};
  config.parallelism.context_parallel_load_balancer = std::nullopt;
  config.model.args.rope_scaling_args.low_freq_factor = 1.5;
  config.model.args.depth_init = false;
  config.compile.components = {};
  EXPECT_EQ(load(to_toml(config)).config, config);
}

TEST(ToToml, OriginsAreCommentsThatChangeNothing) {
  const LoadedConfig loaded = load_job_config_text("[training]\nsteps = 300", "t.toml", parse({"--optimizer.lr=0.5"}),
                                                   {{"TITAN_TRAINING__SEQ_LEN", "64"}});
  const std::string text = to_toml(loaded.config, loaded.origins);
  for (const char* line : {"\nsteps = 300 +# t.toml:2\n", "\nlr = 0.5 +# --optimizer.lr\n",
                           "\nseq_len = 64 +# TITAN_TRAINING__SEQ_LEN\n", "\nlocal_batch_size = 8 +# default\n"})
    EXPECT_THAT(text, ::testing::ContainsRegex(line));
  EXPECT_EQ(load(text).config, loaded.config);
}

TEST(ToToml, ChangedIsWhatDiffersFromTheDefaults) {
  EXPECT_EQ(changed_to_toml(JobConfig{}), "");
  JobConfig config = load("[training]\nsteps = 3\nseq_len = 2048\n[debug]\nseed = 7").config;
  config.job.config_file = "t.toml";
  config.parallelism.context_parallel_load_balancer = std::nullopt;
  EXPECT_EQ(changed_to_toml(config),
            "[training]\nsteps = 3\n\n[parallelism]\ncontext_parallel_load_balancer = \"None\"\n\n[debug]\nseed = 7\n");
  config.job.config_file.reset();
  EXPECT_EQ(load(changed_to_toml(config)).config, config);
}

TEST(Docs, AreCurrent) {
  std::ifstream file(TITAN_SOURCE_DIR "/docs/config.md");
  const std::string found((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_TRUE(found == docs_text()) << "run titan-train --print-docs > docs/config.md";
}

TEST(Docs, EveryTableHasItsKeys) {
  std::size_t num_rows = 0;
  for (const TableDoc& table : table_docs()) {
    EXPECT_TRUE(is_table(table.name)) << table.name;
    EXPECT_THAT(docs_text(), HasSubstr("\n### [" + table.name + "]\n"));
    for (const Field& field : fields()) num_rows += field.key.substr(0, field.key.rfind('.')) == table.name;
  }
  EXPECT_EQ(num_rows, fields().size());
}

TEST(Help, OfOneTableOrKey) {
  EXPECT_THAT(help_text("optimizer"), AllOf(HasSubstr("--optimizer.lr ("), Not(HasSubstr("--lr_scheduler"))));
  EXPECT_THAT(help_text("quantize"), HasSubstr("--quantize.linear.float8.emulate"));  // has no keys of its own
  EXPECT_THAT(help_text("--training.seq-len"),
              ::testing::StartsWith("  --training.seq_len (an integer, at least 2 and at most 134217728"));
  EXPECT_THAT(error_of([] { help_text("optimiser"); }), HasSubstr("did you mean --help optimizer?"));
  EXPECT_THAT(error_of([] { help_text("training.batch_size"); }), HasSubstr("training.local_batch_size"));
  EXPECT_THAT(error_of([] { help_text("zzzzzzzzzzzzz"); }), HasSubstr("the tables are job, "));
}

std::string completed(const std::string& shell, const std::vector<std::string>& words) {
  return complete(shell, words);
}

TEST(Completion, KnowsEveryFlag) {
  const std::string flags = completed("bash", {"--"});
  for (const Field& field : fields()) EXPECT_THAT(flags, HasSubstr("\n--" + field.key + "\t")) << field.key;
  EXPECT_THAT(flags, HasSubstr("\n--checkpoint.no-enable\t"));
  EXPECT_THAT(flags, Not(HasSubstr("\n-c\t")));
  EXPECT_THAT(flags, HasSubstr("\n--training.seq_len\ttokens of one sequence\n"));  // up to the first ';'
}

TEST(Completion, CompletesTheValueOfAFlag) {
  EXPECT_EQ(completed("bash", {"--lr_scheduler.decay_type", "c"}), "words\ncosine\n");
  EXPECT_EQ(completed("bash", {"--lr_scheduler.decay_type", "=", "c"}), "words\ncosine\n");
  EXPECT_EQ(completed("zsh", {"--lr_scheduler.decay_type=c"}), "words\ncosine\n");
  EXPECT_EQ(completed("fish", {"--lr_scheduler.decay_type=c"}), "words\n--lr_scheduler.decay_type=cosine\n");
  EXPECT_EQ(completed("bash", {"--training.steps", ""}), "nothing\n");
  EXPECT_EQ(completed("bash", {"-c", "r"}), "files\n");
  // The value of a boolean may only follow '='.
  EXPECT_EQ(completed("bash", {"--checkpoint.enable", "--world"}).substr(0, 19), "words\n--world-size\t");
  EXPECT_EQ(completed("bash", {"--checkpoint.enable", "="}), "words\ntrue\nfalse\n");
}

TEST(Completion, AsksTheCommandForItsFlags) {
  EXPECT_EQ(completed("bash", {"tokenizer", ""}), "words\ntrain\nencode\ndecode\n--help\n");
  EXPECT_EQ(completed("bash", {"tokenizer", "train", "--type", ""}), "words\nbpe\nunigram\n");
  EXPECT_EQ(completed("bash", {"convert", "--to", "d"}), "words\ndcp\n");
  EXPECT_EQ(completed("bash", {"inspect", ""}), "files\n");
  EXPECT_THAT(completed("bash", {""}), ::testing::EndsWith("\n--config\n"));
}

TEST(Help, FitsOnAScreen) {
  const std::string help = help_text();
  EXPECT_LE(std::ranges::count(help, '\n'), 55);
  for (const std::string& line : split(help, '\n')) EXPECT_LE(line.size(), 110U) << line;
  for (const char* part : {"[training]", "[model.args]", "  sweep ", "--config FILE", "--completion bash,zsh,fish"})
    EXPECT_THAT(help, HasSubstr(part));
  EXPECT_THAT(help, AllOf(Not(HasSubstr("[fault_tolerance]")), Not(HasSubstr("--print-docs"))));
}

TEST(Help, FindsWords) {
  EXPECT_THAT(help_text("lr"), AllOf(::testing::StartsWith("  --optimizer.lr ("), Not(HasSubstr("already"))));
  EXPECT_THAT(help_text("learning"), HasSubstr("  --optimizer.lr ("));
  EXPECT_THAT(help_text("learning-rate"), HasSubstr("  --optimizer.lr ("));
  EXPECT_THAT(help_text("safetensors"), HasSubstr("--checkpoint.last_save_in_hf ("));
  EXPECT_THAT(help_text("nproc"), HasSubstr("  --nproc ("));
  EXPECT_THAT(help_text("shards"), HasSubstr("  titan-train tokenize\n"));
  // Besides a command, only keys without effect here match.
  EXPECT_THAT(help_text("pipeline"), HasSubstr("--parallelism.pipeline_parallel_degree ("));
}

TEST(Help, OfATableNamesTheKeysThatDoNothing) {
  const std::string table = help_text("training");
  EXPECT_THAT(table, AllOf(HasSubstr("  --training.steps ("), Not(HasSubstr("--training.gc_freq (")),
                           HasSubstr("Without effect here (--help KEY says why): gc_freq, gc_debug\n")));
  EXPECT_THAT(help_text("fault_tolerance"), HasSubstr("  --fault_tolerance.enable ("));
  EXPECT_THAT(help_text("training.gc_freq"), HasSubstr("there is no Python garbage collector"));
}

TEST(Help, NamesEveryKeyWithItsDefault) {
  const std::string help = help_text("all");
  for (const Field& field : fields()) {
    EXPECT_THAT(help, HasSubstr("--" + field.key + " ("));
    EXPECT_THAT(help, HasSubstr(doc_of(field)));
  }
  EXPECT_THAT(help, HasSubstr("--training.seq_len (an integer, at least 2 and at most 134217728; default 2048)"));
  EXPECT_THAT(help, HasSubstr("only the default so far: there is no TorchFT here"));
}

TEST(Help, NamesEveryModeAndOnlyFlagsThatExist) {
  const std::string help = help_text("all");
  for (const char* flag :
       {"config", "dry-run", "world-size", "device", "json", "nproc", "print-config", "version", "help", "completion"})
    EXPECT_THAT(help, HasSubstr(std::string("\n  --") + flag)) << flag;
  EXPECT_THAT(help, HasSubstr("\n  tokenizer "));
  for (auto at = help.find("\n  --"); at != std::string::npos; at = help.find("\n  --", at + 1)) {
    const std::string flag = help.substr(at + 3, help.find_first_of(" ,\n", at + 3) - at - 3);
    for (const std::string& error : parse({flag}).errors) EXPECT_THAT(error, Not(HasSubstr("unknown flag"))) << flag;
  }
}

}  // namespace
}  // namespace titan::config
